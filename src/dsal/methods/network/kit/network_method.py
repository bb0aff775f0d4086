"""The base class of methods that train a network in every phase; a subclass mostly defines its loss.

It puts the pieces together: the growing network, parts (``part``), the exemplars and their policy (``exemplars``), the
options and the runner of stages (``stages``).
"""

from __future__ import annotations

import copy
from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dsal.backbones import Backbone
from dsal.base.progress import Progress
from dsal.data.samples import Samples
from dsal.errors import InputError
from dsal.files.tensors import parted
from dsal.methods.contract import Method, Phase, Self, State
from dsal.methods.network.kit.exemplars import Exemplars, Memory
from dsal.methods.network.kit.growing_network import (
    Arrays,
    GrowingNetwork,
    Output,
    build_network,
    network_facts,
    to_arrays,
    to_tensors,
)
from dsal.methods.network.kit.part import Part
from dsal.methods.network.kit.stages import Stage, StageRunner, TrainingOptions
from dsal.training.device import choose_device, choose_precision
from dsal.training.fit import Batch, Fit, Forward
from dsal.training.loop import EVALUATION_BATCH
from dsal.training.recipe import Recipe
from dsal.training.sample import pixel_moments, seed_of

AnyPart = TypeVar("AnyPart", bound=Part[Any])


@dataclass(kw_only=True, eq=False)
class NetworkMethod(TrainingOptions, Method):
    """A method that trains body and head on the images of each phase, and on any exemplars it keeps.

    A phase runs the steps of one :class:`~dsal.training.fit.Fit` per stage, and can be saved after each step. A method
    started from a network trained on phase 0 does not train in phase 0, unless its head differs from that network's.

    A subclass defines :meth:`loss`, and declares what else it needs: ``head``, ``has_teacher``, ``parts``, ``policy``.
    What happens around the training belongs to parts, never to an override here. The options are those of
    :class:`~dsal.methods.network.kit.stages.TrainingOptions`.
    """

    inputs = "images"
    seed_varies = "initial weights, batches and augmentation"
    head: ClassVar[str] = "linear"
    """Name of the head."""
    has_teacher: ClassVar[bool] = False
    """Whether the loss uses the network as it was before the phase."""
    parts: ClassVar[tuple[type[Part[Any]], ...]] = ()
    """What the method does around its training, in order."""
    policy: ClassVar[type[Memory[Any]]] = Memory
    """Which images it trains on and keeps."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.torch_device = choose_device(self.device)
        self._precision = choose_precision(self.precision, self.torch_device)
        self._classes = 0  # of finished phases
        self._trained = 0  # largest number of weights trained in a stage so far
        self._network: GrowingNetwork | None = None
        self.teacher: GrowingNetwork | None = None  # the network before the phase, during a phase
        self._given: dict[str, Tensor] | None = None  # the head of the network passed to start(), until phase 0
        self._runner = StageRunner()
        self.memory = self.policy(self)
        self._parts = (*(make(self) for make in self.parts), self.memory)

    # What a subclass may define: formulas and values, nothing that must also call super().

    @abstractmethod
    def loss(self, now: Output, before: Output | None, labels: Tensor, known: int) -> Tensor:
        """Return the mean loss over a batch of images.

        Args:
            now: output of the network for the images.
            before: output of the network before the phase; None in phase 0 and without a teacher.
            labels: classes of the images (n,).
            known: the number of classes before the phase.
        """

    def head_options(self) -> dict[str, Any]:
        """Return the options of the head."""
        return {}

    def adopt(self, weight: Tensor, bias: Tensor) -> bool:
        """Copy the head (classes, d) of the network passed to start(); return whether phase 0 needs no training."""
        return self.network.adopt(weight, bias)

    def stage(self, number: int, phase: Phase, epochs: int) -> Stage | None:
        """Return the stage of a phase that is about to begin or resume; None after the last one.

        Args:
            number: number of the stage, from 0.
            phase: the phase.
            epochs: epochs of the first stage.
        """
        return Stage(epochs, self.memory.with_exemplars(phase)) if number == 0 else None

    def batch_loss(self, forward: Forward, batch: Batch, known: int) -> tuple[Tensor, int]:
        """Return the mean loss over the images of this process, and how many of them were classified correctly."""
        x = self.network.normalise(batch.images[batch.mine])
        labels = batch.labels[batch.mine]
        now: Output = forward(x)
        return self.loss(now, self.before(x), labels, known), int((now.logits.argmax(1) == labels).sum())

    def scores_of(self, images: Tensor, output: Output) -> Tensor:
        """Return scores (n, classes) of a batch of images."""
        return output.logits

    # What parts and losses use.

    @property
    def network(self) -> GrowingNetwork:
        """The current network."""
        if self._network is None:
            raise InputError("nothing has been learned yet")
        return self._network

    @property
    def exemplars(self) -> Exemplars:
        """The images kept."""
        return self.memory.exemplars

    def part(self, kind: type[AnyPart]) -> AnyPart:
        """Return the part of this type."""
        return next(part for part in self._parts if isinstance(part, kind))

    def each_part(self, hook: str, *arguments: Any) -> None:
        """Call a hook of every part, in order."""
        for part in self._parts:
            getattr(part, hook)(*arguments)

    def before(self, x: Tensor) -> Output | None:
        """Return the output of the network before the phase for normalised images; None without a teacher."""
        if self.teacher is None:
            return None
        with torch.no_grad(), self.autocast():
            return self.teacher(x)  # type: ignore[no-any-return]

    def autocast(self) -> torch.autocast:
        """Return a context manager with the precision of the training."""
        return torch.autocast(self.torch_device.type, self._precision, enabled=self._precision != torch.float32)

    @torch.no_grad()
    def read(self, samples: Samples, network: GrowingNetwork | None = None) -> Iterator[tuple[Tensor, Output, Tensor]]:
        """Yield images, the output of the network (or another one) in evaluation mode, and labels, on the device."""
        network = (self.network if network is None else network).eval()
        for images, labels in samples.batches(EVALUATION_BATCH):
            on_device = images.to(self.torch_device)
            yield on_device, network(network.normalise(on_device)), labels.to(self.torch_device)

    def features_of(self, samples: Samples) -> Tensor:
        """Return the features (n, d) of samples, in order."""
        return torch.cat([output.features for _, output, _ in self.read(samples)])

    def copied_network(self) -> GrowingNetwork:
        """Return a frozen copy of the network."""
        return copy.deepcopy(self.network).requires_grad_(False).eval()

    def recipe(self, epochs: int, images: int) -> Recipe:
        """Return how to train for some epochs on a number of images in the current phase."""
        return self.recipe_of(epochs, images, base=not self._classes)

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

    def start(self, backbone: Backbone) -> None:
        if self._network is not None:
            raise InputError("start() must be called once, before phase 0")
        self._network = self._placed(GrowingNetwork.of(backbone, self.head, **self.head_options()))
        head = backbone.head
        self._given = {} if head is None else {"weight": head.weight.detach(), "bias": head.bias.detach()}

    def scores(self, samples: Samples) -> NDArray[np.float32]:
        if not self._classes:
            raise InputError("nothing has been learned yet")
        rows = [self.scores_of(images, output).cpu() for images, output, _ in self.read(samples)]
        return torch.cat(rows).numpy() if rows else np.zeros((0, self._classes), dtype=np.float32)

    # One phase.

    def _steps(self, phase: Phase) -> Iterator[Progress]:
        phase, runner = self.memory.used(phase), self._runner
        self.each_part("check", phase)
        runner.enter(phase.index, lambda: self._begin_phase(phase))
        while (stage := self.stage(runner.number, phase, runner.epochs)) is not None:
            if stage.epochs:
                yield from runner.run(self._fit(stage), lambda: self.each_part("end_epoch", phase, runner.number))
            runner.number += 1
            self.each_part("begin_stage", runner.number, phase)
        self._end_phase(phase)

    def _begin_phase(self, phase: Phase) -> int:
        """Create or grow the network; return the number of epochs to train."""
        new = [c for c in phase.classes if c >= self._classes]
        generator = torch.Generator().manual_seed(seed_of(self.seed, phase.index))
        if self._classes and self.has_teacher:
            self.teacher = self.copied_network()
        if self._network is None:
            self._network = self._from_scratch(phase.samples)
        self._network.grow(len(new), generator)
        self.each_part("shape", self._network)
        given, self._given = self._given, None
        fits = bool(given) and given is not None and self.adopt(**given)
        self.each_part("begin", phase)
        if fits:
            return 0
        if given is not None:
            return self.adapt_epochs
        return self.epochs if self._classes or self.base_epochs is None else self.base_epochs

    def _fit(self, stage: Stage) -> Fit:
        """Return the fit of a stage, with what it does not train frozen."""
        module, known = stage.module or self.network, self._classes
        module.requires_grad_(stage.trained is None)
        if stage.trained is not None:
            stage.trained.requires_grad_(True)
        elif stage.module is None:
            self.each_part("freeze")

        def loss(forward: Forward, batch: Batch) -> tuple[Tensor, int]:
            return self.batch_loss(forward, batch, known)

        trainable = sum(parameter.numel() for parameter in module.parameters() if parameter.requires_grad)
        self._trained = max(self._trained, trainable)
        return Fit(
            module,
            stage.samples,
            stage.loss or loss,
            replace(self.recipe(stage.epochs, len(stage.samples)), **stage.recipe),
            seed=seed_of(self.seed, 1_000_000 * (1 + self._runner.number) + self._runner.phase),
            device=self.torch_device,
            precision=self._precision,
            team=self.team,
        )

    def _end_phase(self, phase: Phase) -> None:
        network = self.network.eval().requires_grad_(True)
        self.each_part("end", phase)
        self.memory.keep(phase)
        self.teacher = None
        self._classes = network.head.classes

    def _from_scratch(self, samples: Samples) -> GrowingNetwork:
        """Return a network with random weights and no classes that normalises pixels by the moments of phase 0."""
        mean, std = torch.tensor(pixel_moments(samples)).T
        with torch.random.fork_rng():
            torch.manual_seed(self.seed)
            network = GrowingNetwork(self.architecture, len(mean), self.head, **self.head_options())
        network.pixel_mean.copy_(mean.view(1, -1, 1, 1))
        network.pixel_std.copy_(std.view(1, -1, 1, 1))
        return self._placed(network)

    def _placed(self, network: GrowingNetwork) -> GrowingNetwork:
        """Move the network to the device, in the memory format of fast kernels."""
        return network.to(self.torch_device, memory_format=torch.channels_last)  # type: ignore[call-overload,no-any-return]

    # State.

    def state(self) -> State:
        options = {field.name: getattr(self, field.name) for field in fields(self)}
        facts: dict[str, Any] = {"options": options, "classes": self._classes, "trained": self._trained}
        arrays: Arrays = {}
        for name, network in (("network", self._network), ("teacher", self.teacher)):
            if network is not None:
                facts[name] = network_facts(network)
                arrays |= to_arrays(network.state_dict(), name)
        for part in self._parts:
            arrays |= to_arrays(part.state(), "extra")
        if self.exemplars.data is not None:
            arrays["exemplars.images"] = self.exemplars.data.images.numpy()
            arrays["exemplars.labels"] = self.exemplars.data.labels.numpy()
        if (running := self._runner.state()) is not None:
            facts["fit"] = running[1]
            arrays |= {f"fit.{key}": value for key, value in running[0].items()}
        if self._given is not None:
            facts["given"] = True
            arrays |= to_arrays(self._given, "given")
        return State(arrays, facts)

    @classmethod
    def from_state(cls: type[Self], state: State) -> Self:
        options = state.facts["options"].items()
        method = cls(**{name: tuple(value) if isinstance(value, list) else value for name, value in options})
        method._resume(state.facts, parted(state.arrays))  # type: ignore[attr-defined]
        return method

    def _resume(self, facts: dict[str, Any], parts: dict[str, Arrays]) -> None:
        self._classes, self._trained = facts["classes"], facts["trained"]
        for name in ("network", "teacher"):
            if name in facts:
                network = build_network(facts[name], self.head, self.head_options())
                self.each_part("shape", network)
                network.load_state_dict(to_tensors(parts[name]))
                setattr(self, "_network" if name == "network" else name, self._placed(network))
        if self.teacher is not None:
            self.teacher.requires_grad_(False).eval()
        if "exemplars" in parts:
            self.exemplars.store(**to_tensors(parts["exemplars"]))
        self.each_part("restore", to_tensors(parts.get("extra", {}), self.torch_device))
        if facts.get("given"):
            self._given = to_tensors(parts.get("given", {}), self.torch_device)
        if "fit" in facts:
            self._runner.restore(parts.get("fit", {}), facts["fit"])
