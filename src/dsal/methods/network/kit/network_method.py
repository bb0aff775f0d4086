"""The base class of methods that train a network in every phase; a subclass mostly defines its loss."""

from __future__ import annotations

import copy
from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dsal.analytic.packing import parted
from dsal.backbones import Backbone
from dsal.base.progress import Progress
from dsal.data.images.image_files import FileData
from dsal.data.samples import ImageData, Samples, joined
from dsal.errors import InputError
from dsal.methods.contract import Method, Phase, Self, State
from dsal.methods.network.kit.exemplars import Exemplars, herd
from dsal.methods.network.kit.growing_network import GrowingNetwork, Output
from dsal.methods.network.kit.stages import Stage
from dsal.training.device import choose_device, choose_precision
from dsal.training.fit import Batch, Fit, Forward
from dsal.training.recipe import Recipe
from dsal.training.sample import pixel_moments, seed_of

EVALUATION_BATCH = 500


@dataclass(kw_only=True, eq=False)
class NetworkMethod(Method):
    """A method that trains body and head on the images of each phase, and on any exemplars it keeps.

    A phase runs the steps of one :class:`~dsal.training.fit.Fit` per stage, and can be saved after each step. A method
    started from a network trained on phase 0 does not train in phase 0, unless its head differs from that network's.

    Args:
        epochs: passes over the images of a phase.
        base_epochs: passes in phase 0; ``epochs`` by default.
        base_lr: learning rate at the beginning of phase 0; ``lr`` by default.
        base_milestones: ``milestones`` of phase 0, if they differ.
        base_weight_decay: ``weight_decay`` of phase 0, if it differs.
        adapt_epochs: passes in phase 0 if the method starts from a network whose head does not fit.
        batch_size: images per step; all of them if a phase has fewer.
        optimiser: ``sgd`` or ``adam``.
        lr: learning rate at the beginning of a phase.
        milestones: fractions of a phase at which ``lr`` drops tenfold; empty for one cosine down to zero.
        momentum: momentum of SGD.
        weight_decay: L2 penalty.
        mirror: mirror half of the images; not for characters.
        trivial: fraction of the images that get TrivialAugmentWide, in addition to crop and flip.
        architecture: architecture of the network, if the method does not start from one.
        device: ``auto`` or the name of a device.
        precision: ``auto``, ``float32``, ``bfloat16`` or ``float16``.
        seed: seed of initial weights, batches and augmentation.
    """

    epochs: int = 160
    base_epochs: int | None = None
    base_lr: float | None = None
    base_milestones: tuple[float, ...] | None = None
    base_weight_decay: float | None = None
    adapt_epochs: int = 10
    batch_size: int = 128
    optimiser: Literal["sgd", "adam"] = "sgd"
    lr: float = 0.1
    milestones: tuple[float, ...] = (0.5, 0.75)
    momentum: float = 0.9
    weight_decay: float = 5e-4
    mirror: bool = True
    trivial: float = 0.0
    architecture: str = "resnet32"
    device: str = "auto"
    precision: str = "auto"
    seed: int = 0

    inputs = "images"
    seed_varies = "initial weights, batches and augmentation"
    head: ClassVar[str] = "linear"
    has_teacher: ClassVar[bool] = False
    """Whether the loss uses the network as it was before the phase."""

    def __post_init__(self) -> None:
        if min(self.epochs, self.batch_size) < 1 or self.lr <= 0 or self.adapt_epochs < 0:
            raise InputError(
                "epochs and batch_size must be 1 or more, lr above 0, adapt_epochs 0 or more; got "
                f"{self.epochs}, {self.batch_size}, {self.lr}, {self.adapt_epochs}"
            )
        self._device = choose_device(self.device)
        self._precision = choose_precision(self.precision, self._device)
        self._classes = 0  # of finished phases
        self._trained = 0  # largest number of weights trained in a stage so far
        self._network: GrowingNetwork | None = None
        self._teacher: GrowingNetwork | None = None
        self._given: dict[str, Tensor] | None = None  # the head of the network passed to start(), until phase 0
        self._fit: Fit | None = None
        self._phase = self._number = self._epochs = 0  # of the fit: phase, stage, epochs of the phase's first stage
        self._stopped: tuple[dict[str, NDArray[Any]], dict[str, Any]] | None = None  # of an interrupted fit
        self.exemplars = self._memory()

    # Hooks for subclasses.

    def _memory(self) -> Exemplars:
        """Return the initial exemplar memory."""
        return Exemplars(0)

    def _head_options(self) -> dict[str, Any]:
        """Return the options of the head."""
        return {}

    @abstractmethod
    def loss(self, now: Output, before: Output | None, labels: Tensor, known: int) -> Tensor:
        """Return the mean loss over a batch of images.

        Args:
            now: output of the network for the images.
            before: output of the network before the phase; None in phase 0 and without a teacher.
            labels: classes of the images (n,).
            known: the number of classes before the phase.
        """

    def _adopt(self, weight: Tensor, bias: Tensor) -> bool:
        """Copy the head (classes, d) of the network passed to start(); return whether phase 0 needs no training."""
        return self.network.adopt(weight, bias)

    def _shape(self, network: GrowingNetwork) -> None:
        """Modify a network after its head has grown; also called when a network is restored from a state."""

    def _begin(self, phase: Phase) -> None:
        """Prepare the training of a phase; the network has already grown."""

    def _freeze(self) -> None:
        """Freeze what the first stage of a phase does not train; called when that stage begins or resumes."""

    def _begin_stage(self, number: int, phase: Phase) -> None:
        """Prepare a later stage (1, 2 ...) of a phase; not called again when the stage resumes."""

    def _stage(self, number: int, phase: Phase, epochs: int) -> Stage | None:
        """Return the stage of a phase that is about to begin or resume; None after the last one.

        Args:
            number: number of the stage, from 0.
            phase: the phase.
            epochs: epochs of the first stage.
        """
        return Stage(epochs, self._with_exemplars(phase)) if number == 0 else None

    def _end_epoch(self, phase: Phase, number: int) -> None:
        """Run after each epoch of a stage; :meth:`state` must be valid afterwards."""

    def _end(self, phase: Phase) -> None:
        """Run after the training of a phase, before exemplars are chosen."""

    def _extra(self) -> dict[str, Tensor]:
        """Return the state besides network, teacher and exemplars, by name."""
        return {}

    def _restore_extra(self, extra: dict[str, Tensor]) -> None:
        """Restore the tensors of :meth:`_extra`."""

    # The method interface.

    @property
    def exemplar_free(self) -> bool:
        return self.exemplars.per_class == 0

    @property
    def stored_samples(self) -> int:
        return len(self.exemplars)

    @property
    def trained_parameters(self) -> int:
        return self._trained

    @property
    def classes_seen(self) -> int:
        return self._classes

    @property
    def network(self) -> GrowingNetwork:
        """The current network."""
        if self._network is None:
            raise InputError("nothing has been learned yet")
        return self._network

    def start(self, backbone: Backbone) -> None:
        if self._network is not None:
            raise InputError("start() must be called once, before phase 0")
        self._network = self._placed(GrowingNetwork.of(backbone, self.head, **self._head_options()))
        head = backbone.head
        self._given = {} if head is None else {"weight": head.weight.detach(), "bias": head.bias.detach()}

    def _steps(self, phase: Phase) -> Iterator[Progress]:
        if self._stopped is not None and self._stopped[1]["phase"] != phase.index:
            raise InputError(f"learning was stopped within phase {self._stopped[1]['phase']}: continue with that phase")
        self._phase = phase.index
        if self._stopped is None:
            self._number, self._epochs = 0, self._begin_phase(phase)
        else:
            self._number, self._epochs = int(self._stopped[1]["stage"]), int(self._stopped[1]["epochs"])
        while (stage := self._stage(self._number, phase, self._epochs)) is not None:
            if stage.epochs:
                self._fit = fit = self._start(stage)
                for progress in fit.steps():
                    if progress.done % fit.steps_per_epoch == 0:
                        self._end_epoch(phase, self._number)
                    yield progress
                self._fit = None
            self._number += 1
            self._begin_stage(self._number, phase)
        self._end_phase(phase)

    def _start(self, stage: Stage) -> Fit:
        """Return the fit of a stage, restored if it was interrupted."""
        module, known = stage.module or self.network, self._classes
        module.requires_grad_(stage.trained is None)
        if stage.trained is not None:
            stage.trained.requires_grad_(True)
        elif stage.module is None:
            self._freeze()

        def loss(forward: Forward, batch: Batch) -> tuple[Tensor, int]:
            return self._batch_loss(forward, batch, known)

        trainable = sum(parameter.numel() for parameter in module.parameters() if parameter.requires_grad)
        self._trained = max(self._trained, trainable)
        fit = Fit(
            module,
            stage.samples,
            stage.loss or loss,
            replace(self._recipe(stage.epochs, len(stage.samples)), **stage.recipe),
            seed=seed_of(self.seed, 1_000_000 * (1 + self._number) + self._phase),
            device=self._device,
            precision=self._precision,
            team=self.team,
        )
        if self._stopped is not None:
            fit.restore(*self._stopped)
            self._stopped = None
        return fit

    def _with_exemplars(self, phase: Phase) -> Samples:
        """Return the images of the phase and the exemplars of earlier ones."""
        kept = self.exemplars.data
        return phase.samples if kept is None else joined([phase.samples, kept])

    def _begin_phase(self, phase: Phase) -> int:
        """Create or grow the network; return the number of epochs to train."""
        new = [c for c in phase.classes if c >= self._classes]
        generator = torch.Generator().manual_seed(seed_of(self.seed, phase.index))
        if self._classes and self.has_teacher:
            self._teacher = copy.deepcopy(self.network).requires_grad_(False).eval()
        if self._network is None:
            self._network = self._from_scratch(phase.samples)
        self._network.grow(len(new), generator)
        self._shape(self._network)
        given, self._given = self._given, None
        fits = bool(given) and given is not None and self._adopt(**given)
        self._begin(phase)
        if fits:
            return 0
        if given is not None:
            return self.adapt_epochs
        return self.epochs if self._classes or self.base_epochs is None else self.base_epochs

    def _from_scratch(self, samples: Samples) -> GrowingNetwork:
        """Return a network with random weights and no classes that normalises pixels by the moments of phase 0."""
        mean, std = torch.tensor(pixel_moments(samples)).T
        with torch.random.fork_rng():
            torch.manual_seed(self.seed)
            network = GrowingNetwork(self.architecture, len(mean), self.head, **self._head_options())
        network.pixel_mean.copy_(mean.view(1, -1, 1, 1))
        network.pixel_std.copy_(std.view(1, -1, 1, 1))
        return self._placed(network)

    def _placed(self, network: GrowingNetwork) -> GrowingNetwork:
        """Move the network to the device, in the memory format of fast kernels."""
        return network.to(self._device, memory_format=torch.channels_last)  # type: ignore[call-overload,no-any-return]

    def _end_phase(self, phase: Phase) -> None:
        network = self.network.eval().requires_grad_(True)
        self._end(phase)
        self._keep(phase)
        self._teacher = None
        self._classes = network.head.classes

    def _recipe(self, epochs: int, images: int) -> Recipe:
        recipe = Recipe(
            epochs=epochs,
            batch_size=min(self.batch_size, images),
            optimiser=self.optimiser,
            lr=self.lr,
            milestones=self.milestones,
            momentum=self.momentum,
            weight_decay=self.weight_decay,
            mirror=self.mirror,
            trivial=self.trivial,
        )
        own = {"lr": self.base_lr, "milestones": self.base_milestones, "weight_decay": self.base_weight_decay}
        given = {name: value for name, value in own.items() if value is not None}
        return recipe if self._classes else replace(recipe, **given)  # type: ignore[arg-type]

    def _batch_loss(self, forward: Forward, batch: Batch, known: int) -> tuple[Tensor, int]:
        x = self.network.normalise(batch.images[batch.mine])
        labels = batch.labels[batch.mine]
        now: Output = forward(x)
        return self.loss(now, self._before(x), labels, known), int((now.logits.argmax(1) == labels).sum())

    def _before(self, x: Tensor) -> Output | None:
        """Return the output of the network before the phase for normalised images; None without a teacher."""
        if self._teacher is None:
            return None
        with torch.no_grad(), self.autocast():
            return self._teacher(x)  # type: ignore[no-any-return]

    def autocast(self) -> torch.autocast:
        """Return a context manager with the precision of the training."""
        return torch.autocast(self._device.type, self._precision, enabled=self._precision != torch.float32)

    # Running images through the network, in evaluation mode.

    @torch.no_grad()
    def _read(self, samples: Samples) -> Iterator[tuple[Tensor, Output, Tensor]]:
        """Yield images, the output of the network and labels, all on the device."""
        network = self.network.eval()
        for images, labels in samples.batches(EVALUATION_BATCH):
            on_device = images.to(self._device)
            yield on_device, network(network.normalise(on_device)), labels.to(self._device)

    def features_of(self, samples: Samples) -> Tensor:
        """Return the features (n, d) of samples, in order."""
        return torch.cat([output.features for _, output, _ in self._read(samples)])

    def scores(self, samples: Samples) -> NDArray[np.float32]:
        if not self._classes:
            raise InputError("nothing has been learned yet")
        rows = [self._scores(images, output).cpu() for images, output, _ in self._read(samples)]
        return torch.cat(rows).numpy() if rows else np.zeros((0, self._classes), dtype=np.float32)

    def _scores(self, images: Tensor, output: Output) -> Tensor:
        """Return scores (n, classes) of a batch of images."""
        return output.logits

    def _keep(self, phase: Phase) -> None:
        """Choose exemplars of the new classes by herding, unless already done in this phase."""
        held = self.exemplars.data
        if self.exemplars.per_class == 0 or (held is not None and bool((held.labels >= self._classes).any())):
            return
        labels, kept = phase.samples.labels, []
        for label, count in self._exemplar_counts(phase).items():
            rows = torch.nonzero(labels == label).flatten()
            own = phase.samples.take(rows)
            some = own if count is None else own.take(herd(self.features_of(own), count).to(rows.device))
            kept.append(_in_memory(some))
        self.exemplars.add(
            ImageData(torch.cat([part.images for part in kept]), torch.cat([part.labels for part in kept])),
            self.network.head.classes,
        )

    def _exemplar_counts(self, phase: Phase) -> dict[int, int | None]:
        """Return the number of images to keep of each class of a phase; None for all."""
        return dict.fromkeys(phase.classes, self.exemplars.per_class)

    # State.

    def state(self) -> State:
        options = {field.name: getattr(self, field.name) for field in fields(self)}
        facts: dict[str, Any] = {"options": options, "classes": self._classes, "trained": self._trained}
        arrays: dict[str, NDArray[Any]] = {}
        for name, network in (("network", self._network), ("teacher", self._teacher)):
            if network is not None:
                facts[name] = {
                    "architecture": network.architecture,
                    "in_channels": network.pixel_mean.shape[1],
                    "groups": network.head.groups,
                }
                arrays |= {f"{name}.{key}": value for key, value in _arrays(network.state_dict()).items()}
        arrays |= {f"extra.{key}": value for key, value in _arrays(self._extra()).items()}
        if self.exemplars.data is not None:
            arrays["exemplars.images"] = self.exemplars.data.images.numpy()
            arrays["exemplars.labels"] = self.exemplars.data.labels.numpy()
        if self._fit is not None:
            where = {"phase": self._phase, "stage": self._number, "epochs": self._epochs}
            facts["fit"] = {**self._fit.facts(), **where}
            arrays |= {f"fit.{key}": value for key, value in self._fit.arrays().items()}
        if self._given is not None:
            facts["given"] = True
            arrays |= {f"given.{key}": value for key, value in _arrays(self._given).items()}
        return State(arrays, facts)

    @classmethod
    def from_state(cls: type[Self], state: State) -> Self:
        facts, parts = state.facts, parted(state.arrays)
        options = {name: tuple(value) if isinstance(value, list) else value for name, value in facts["options"].items()}
        method = cls(**options)
        method._resume(facts, parts)  # type: ignore[attr-defined]
        return method

    def _resume(self, facts: dict[str, Any], parts: dict[str, dict[str, NDArray[Any]]]) -> None:
        self._classes, self._trained = facts["classes"], facts.get("trained", 0)
        for name in ("network", "teacher"):
            if name in facts:
                network = self._rebuilt(facts[name], parts[name])
                setattr(self, f"_{name}", network)
        if self._teacher is not None:
            self._teacher.requires_grad_(False).eval()
        if "exemplars" in parts:
            kept = {name: torch.from_numpy(array.copy()) for name, array in parts["exemplars"].items()}
            self.exemplars.store(kept["images"], kept["labels"])
        self._restore_extra(self._tensors(parts.get("extra", {})))
        if facts.get("given"):
            self._given = self._tensors(parts.get("given", {}))
        if "fit" in facts:
            self._stopped = parts.get("fit", {}), facts["fit"]

    def _tensors(self, arrays: dict[str, NDArray[Any]]) -> dict[str, Tensor]:
        return {name: torch.from_numpy(array.copy()).to(self._device) for name, array in arrays.items()}

    def _rebuilt(self, shape: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> GrowingNetwork:
        network = GrowingNetwork(shape["architecture"], shape["in_channels"], self.head, **self._head_options())
        for classes in shape["groups"]:
            network.grow(classes, torch.Generator())
        self._shape(network)
        network.load_state_dict({name: torch.from_numpy(array.copy()) for name, array in arrays.items()})
        return self._placed(network)


def _arrays(tensors: dict[str, Tensor]) -> dict[str, NDArray[Any]]:
    return {name: value.detach().cpu().numpy().copy() for name, value in tensors.items()}


def _in_memory(samples: Samples) -> ImageData:
    """Return the images as arrays on the CPU."""
    if isinstance(samples, ImageData | FileData):
        return samples.in_memory()
    raise InputError(f"expected images, got {type(samples).__name__}")
