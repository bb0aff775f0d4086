"""A method that trains a network in every phase: what is left to it is mostly its loss."""

from __future__ import annotations

import copy
from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dsal.backbones import Backbone
from dsal.data.files import FileData
from dsal.data.samples import ImageData, Samples, joined
from dsal.errors import InputError
from dsal.methods.contract import Method, Phase, Self, State
from dsal.methods.network.exemplars import Exemplars, herd
from dsal.methods.network.network import GrowingNetwork, Output
from dsal.progress import Progress
from dsal.training.device import choose_device, choose_precision
from dsal.training.fit import Batch, Fit, Forward
from dsal.training.recipe import Recipe
from dsal.training.sample import moments_of_samples, seed_of

EVALUATION_BATCH = 500


@dataclass(kw_only=True, eq=False)
class NetworkMethod(Method):
    """Trains body and head on the images of each phase, and on exemplars where it keeps any.

    A phase has the steps of one :class:`~dsal.training.fit.Fit`, and can be saved after each of them. A method that is
    given a network trained on phase 0 does not train in phase 0, unless its head differs from that network's.

    Args:
        epochs: passes over the images of a phase.
        base_epochs: the same in phase 0; ``epochs`` by default.
        adapt_epochs: the same in phase 0 for a network that was given, whose head does not fit.
        batch_size: images a step; all of them where a phase has fewer.
        lr: learning rate at the beginning of a phase.
        milestones: fractions of a phase at which ``lr`` drops tenfold; empty for one cosine down to zero.
        momentum: of SGD.
        weight_decay: L2 penalty.
        mirror: mirror half of the images; not for characters.
        trivial: fraction of the images that get TrivialAugmentWide, besides crop and flip.
        architecture: of the network, where none is given.
        device: ``auto``, or the name of one.
        precision: ``auto``, ``float32``, ``bfloat16`` or ``float16``.
        seed: of initial weights, batches and augmentation.
    """

    epochs: int = 160
    base_epochs: int | None = None
    adapt_epochs: int = 10
    batch_size: int = 128
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
    """Whether the loss compares with the network as it was before the phase."""

    def __post_init__(self) -> None:
        if min(self.epochs, self.batch_size) < 1 or self.lr <= 0 or self.adapt_epochs < 0:
            raise InputError(
                "epochs and batch_size must be 1 or more, lr above 0, adapt_epochs 0 or more; got "
                f"{self.epochs}, {self.batch_size}, {self.lr}, {self.adapt_epochs}"
            )
        self._device = choose_device(self.device)
        self._precision = choose_precision(self.precision, self._device)
        self._classes = 0  # of finished phases
        self._network: GrowingNetwork | None = None
        self._teacher: GrowingNetwork | None = None
        self._given: dict[str, Tensor] | None = None  # the head of the network it was given, before phase 0
        self._fit: Fit | None = None
        self._phase = 0  # of that fit
        self._stopped: tuple[dict[str, NDArray[Any]], dict[str, Any]] | None = None  # of a fit that is to be resumed
        self.exemplars = self._memory()

    # What a method says of itself.

    def _memory(self) -> Exemplars:
        """The memory it begins with."""
        return Exemplars(0)

    @abstractmethod
    def _loss(self, now: Output, before: Output | None, labels: Tensor, known: int) -> Tensor:
        """Mean loss over some images.

        Args:
            now: what the network says of them.
            before: what it said of them before the phase; None in phase 0 and without a teacher.
            labels: their classes (n,).
            known: the number of classes before the phase.
        """

    def _begin(self, phase: Phase) -> None:
        """Do what comes before the training of a phase; the network has grown already."""

    def _end(self, phase: Phase) -> None:
        """Do what comes after the training of a phase, before exemplars are chosen."""

    def _extra(self) -> dict[str, Tensor]:
        """What the method keeps besides network, teacher and exemplars, by name."""
        return {}

    def _restore_extra(self, extra: dict[str, Tensor]) -> None:
        """Take :meth:`_extra` back."""

    # The contract.

    @property
    def exemplar_free(self) -> bool:
        return self.exemplars.per_class == 0

    @property
    def classes_seen(self) -> int:
        return self._classes

    @property
    def network(self) -> GrowingNetwork:
        """The network as it is now."""
        if self._network is None:
            raise InputError("nothing has been learned yet")
        return self._network

    def start(self, backbone: Backbone) -> None:
        if self._network is not None:
            raise InputError("a method starts from a network before phase 0, not after it")
        self._network = self._placed(GrowingNetwork.of(backbone, self.head))
        head = backbone.head
        self._given = {} if head is None else {"weight": head.weight.detach(), "bias": head.bias.detach()}

    def _steps(self, phase: Phase) -> Iterator[Progress]:
        known = self._classes
        if self._stopped is not None and self._stopped[1]["phase"] != phase.index:
            raise InputError(f"learning was stopped inside of phase {self._stopped[1]['phase']}: continue with it")
        samples = joined([phase.samples, *([] if self.exemplars.data is None else [self.exemplars.data])])
        epochs = self._begin_phase(phase) if self._stopped is None else int(self._stopped[1]["epochs"])
        if epochs:
            recipe = self._recipe(epochs, len(samples))
            seed = seed_of(self.seed, 1_000_000 + phase.index)

            def loss(forward: Forward, batch: Batch) -> tuple[Tensor, int]:
                return self._batch_loss(forward, batch, known)

            fit = Fit(
                self.network,
                samples,
                loss,
                recipe,
                seed=seed,
                device=self._device,
                precision=self._precision,
                team=self.team,
            )
            if self._stopped is not None:
                fit.restore(*self._stopped)
                self._stopped = None
            self._fit, self._phase = fit, phase.index
            yield from fit.steps()
            self._fit = None
        self._end_phase(phase)

    def _begin_phase(self, phase: Phase) -> int:
        """Make or grow the network; returns the epochs to train."""
        new = [c for c in phase.classes if c >= self._classes]
        generator = torch.Generator().manual_seed(seed_of(self.seed, phase.index))
        if self._classes and self.has_teacher:
            self._teacher = copy.deepcopy(self.network).requires_grad_(False).eval()
        if self._network is None:
            self._network = self._from_scratch(phase.samples)
        self._network.grow(len(new), generator)
        given, self._given = self._given, None
        fits = bool(given) and given is not None and self._network.adopt(**given)
        self._begin(phase)
        if fits:
            return 0
        if given is not None:
            return self.adapt_epochs
        return self.epochs if self._classes or self.base_epochs is None else self.base_epochs

    def _from_scratch(self, samples: Samples) -> GrowingNetwork:
        """A network with random weights and no classes, which normalises pixels by those of phase 0."""
        mean, std = moments_of_samples(samples)
        with torch.random.fork_rng():
            torch.manual_seed(self.seed)
            network = GrowingNetwork(self.architecture, len(mean), self.head)
        network.pixel_mean.copy_(mean.view(1, -1, 1, 1))
        network.pixel_std.copy_(std.view(1, -1, 1, 1))
        return self._placed(network)

    def _placed(self, network: GrowingNetwork) -> GrowingNetwork:
        """The network on the device, its weights laid out as fast kernels want them."""
        return network.to(self._device, memory_format=torch.channels_last)  # type: ignore[call-overload,no-any-return]

    def _end_phase(self, phase: Phase) -> None:
        network = self.network.eval().requires_grad_(True)
        self._end(phase)
        self._keep(phase)
        self._teacher = None
        self._classes = network.head.classes

    def _recipe(self, epochs: int, images: int) -> Recipe:
        return Recipe(
            epochs=epochs,
            batch_size=min(self.batch_size, images),
            lr=self.lr,
            milestones=self.milestones,
            momentum=self.momentum,
            weight_decay=self.weight_decay,
            mirror=self.mirror,
            trivial=self.trivial,
        )

    def _batch_loss(self, forward: Forward, batch: Batch, known: int) -> tuple[Tensor, int]:
        x = self.network.normalise(batch.images[batch.mine])
        labels = batch.labels[batch.mine]
        now: Output = forward(x)
        before = None
        if self._teacher is not None:
            autocast = torch.autocast(self._device.type, self._precision, enabled=self._precision != torch.float32)
            with torch.no_grad(), autocast:
                before = self._teacher(x)
        return self._loss(now, before, labels, known), int((now.logits.argmax(1) == labels).sum())

    # Reading images through the network, in evaluation mode.

    @torch.no_grad()
    def _read(self, samples: Samples) -> Iterator[tuple[Tensor, Output, Tensor]]:
        """Yield images, what the network says of them, and labels; on the device."""
        network = self.network.eval()
        for images, labels in samples.batches(EVALUATION_BATCH):
            there = images.to(self._device)
            yield there, network(network.normalise(there)), labels.to(self._device)

    def features_of(self, samples: Samples) -> Tensor:
        """Features (n, d) of samples, in order."""
        return torch.cat([output.features for _, output, _ in self._read(samples)])

    def scores(self, samples: Samples) -> NDArray[np.float32]:
        if not self._classes:
            raise InputError("nothing has been learned yet")
        rows = [self._scores(images, output).cpu() for images, output, _ in self._read(samples)]
        return torch.cat(rows).numpy() if rows else np.zeros((0, self._classes), dtype=np.float32)

    def _scores(self, images: Tensor, output: Output) -> Tensor:
        """Scores (n, classes) of some images."""
        return output.logits

    def _keep(self, phase: Phase) -> None:
        """Choose exemplars of the new classes by herding."""
        if self.exemplars.per_class == 0:
            return
        labels, kept = phase.samples.labels, []
        for label in phase.classes:
            rows = torch.nonzero(labels == label).flatten()
            own = phase.samples.take(rows)
            some = own
            if self.exemplars.per_class is not None:
                some = own.take(herd(self.features_of(own), self.exemplars.per_class).to(rows.device))
            kept.append(_in_memory(some))
        self.exemplars.add(
            ImageData(torch.cat([part.images for part in kept]), torch.cat([part.labels for part in kept])),
            self.network.head.classes,
        )

    # State.

    def state(self) -> State:
        options = {field.name: getattr(self, field.name) for field in fields(self)}
        facts: dict[str, Any] = {"options": options, "classes": self._classes}
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
            facts["fit"] = {**self._fit.facts(), "epochs": self._fit.recipe.epochs, "phase": self._phase}
            arrays |= {f"fit.{key}": value for key, value in self._fit.arrays().items()}
        if self._given is not None:
            facts["given"] = True
            arrays |= {f"given.{key}": value for key, value in _arrays(self._given).items()}
        return State(arrays, facts)

    @classmethod
    def from_state(cls: type[Self], state: State) -> Self:
        facts, parts = state.facts, _parts(state.arrays)
        options = {name: tuple(value) if isinstance(value, list) else value for name, value in facts["options"].items()}
        method = cls(**options)
        method._resume(facts, parts)  # type: ignore[attr-defined]
        return method

    def _resume(self, facts: dict[str, Any], parts: dict[str, dict[str, NDArray[Any]]]) -> None:
        self._classes = facts["classes"]
        for name in ("network", "teacher"):
            if name in facts:
                made = self._rebuilt(facts[name], parts[name])
                setattr(self, f"_{name}", made)
        if self._teacher is not None:
            self._teacher.requires_grad_(False).eval()
        if "exemplars" in parts:
            kept = {name: torch.from_numpy(array.copy()) for name, array in parts["exemplars"].items()}
            self.exemplars.data = ImageData(kept["images"], kept["labels"])
        self._restore_extra(self._tensors(parts.get("extra", {})))
        if facts.get("given"):
            self._given = self._tensors(parts.get("given", {}))
        if "fit" in facts:
            self._stopped = parts.get("fit", {}), facts["fit"]
            self._freeze()

    def _tensors(self, arrays: dict[str, NDArray[Any]]) -> dict[str, Tensor]:
        return {name: torch.from_numpy(array.copy()).to(self._device) for name, array in arrays.items()}

    def _freeze(self) -> None:
        """Freeze again what is frozen inside a phase; called when a phase is resumed."""

    def _rebuilt(self, shape: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> GrowingNetwork:
        network = GrowingNetwork(shape["architecture"], shape["in_channels"], self.head)
        for classes in shape["groups"]:
            network.grow(classes, torch.Generator())
        network.load_state_dict({name: torch.from_numpy(array.copy()) for name, array in arrays.items()})
        return self._placed(network)


def _arrays(tensors: dict[str, Tensor]) -> dict[str, NDArray[Any]]:
    return {name: value.detach().cpu().numpy().copy() for name, value in tensors.items()}


def _parts(arrays: dict[str, NDArray[Any]]) -> dict[str, dict[str, NDArray[Any]]]:
    """Arrays by the first part of their names."""
    parts: dict[str, dict[str, NDArray[Any]]] = {}
    for name, array in arrays.items():
        part, _, rest = name.partition(".")
        parts.setdefault(part, {})[rest] = array
    return parts


def _in_memory(samples: Samples) -> ImageData:
    """The images themselves, on the CPU."""
    if isinstance(samples, ImageData | FileData):
        return samples.in_memory()
    raise InputError(f"expected images, got {type(samples).__name__}")
