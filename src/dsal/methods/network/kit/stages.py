"""How a phase is trained: the options of every method, and one or more training stages."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from numpy.typing import NDArray
from torch import nn

from dsal.base.progress import Progress
from dsal.data.samples import Samples
from dsal.errors import InputError
from dsal.training.fit import Fit, Loss
from dsal.training.recipe import Recipe


@dataclass(kw_only=True, eq=False)
class TrainingOptions:
    """How a network is trained in each phase.

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

    def __post_init__(self) -> None:
        if min(self.epochs, self.batch_size) < 1 or self.lr <= 0 or self.adapt_epochs < 0:
            raise InputError(
                "epochs and batch_size must be 1 or more, lr above 0, adapt_epochs 0 or more; got "
                f"{self.epochs}, {self.batch_size}, {self.lr}, {self.adapt_epochs}"
            )

    def recipe_of(self, epochs: int, images: int, *, base: bool) -> Recipe:
        """Return how to train for some epochs on a number of images, in phase 0 (``base``) or later."""
        names = ("optimiser", "lr", "milestones", "momentum", "weight_decay", "mirror", "trivial")
        values = {name: getattr(self, name) for name in names}
        for name in ("lr", "milestones", "weight_decay") if base else ():
            own = getattr(self, f"base_{name}")
            values[name] = values[name] if own is None else own
        return Recipe(epochs=epochs, batch_size=min(self.batch_size, images), **values)


Arrays = dict[str, NDArray[Any]]


@dataclass(frozen=True, eq=False)
class Stage:
    """One training stage of a phase.

    Attributes:
        epochs: passes over the samples.
        samples: images to train on.
        loss: loss to minimise; the method's ``loss`` by default.
        module: module to train; the method's network by default.
        trained: part of ``module`` whose weights are updated; by default all of it except what the ``freeze`` of
            parts freezes.
        recipe: fields of the recipe that differ from the method's options, such as ``lr``.
    """

    epochs: int
    samples: Samples
    loss: Loss | None = None
    module: nn.Module | None = None
    trained: nn.Module | None = None
    recipe: Mapping[str, Any] = field(default_factory=dict)


class StageRunner:
    """Runs the stages of a phase one after the other; can be saved after every step and continues from there."""

    def __init__(self) -> None:
        self.phase = self.number = self.epochs = 0  # phase, stage, epochs of the phase's first stage
        self._fit: Fit | None = None
        self._stopped: tuple[Arrays, dict[str, Any]] | None = None  # of an interrupted fit

    def enter(self, phase: int, begin: Callable[[], int]) -> None:
        """Go to the first stage of a phase, whose epochs ``begin`` returns; or back to where a restored one stopped.

        Raises:
            InputError: learning was stopped within another phase.
        """
        if self._stopped is not None and self._stopped[1]["phase"] != phase:
            raise InputError(f"learning was stopped within phase {self._stopped[1]['phase']}: continue with that phase")
        self.phase = phase
        if self._stopped is None:
            self.number, self.epochs = 0, begin()
        else:
            self.number, self.epochs = int(self._stopped[1]["stage"]), int(self._stopped[1]["epochs"])

    def run(self, fit: Fit, end_epoch: Callable[[], None]) -> Iterator[Progress]:
        """Train to the end of a fit, from where it stopped if it was interrupted."""
        if self._stopped is not None:
            fit.restore(*self._stopped)
            self._stopped = None
        self._fit = fit
        for progress in fit.steps():
            if progress.done % fit.steps_per_epoch == 0:
                end_epoch()
            yield progress
        self._fit = None

    def state(self) -> tuple[Arrays, dict[str, Any]] | None:
        """Return the state of the fit in progress; None between phases."""
        if self._fit is None:
            return None
        where = {"phase": self.phase, "stage": self.number, "epochs": self.epochs}
        return self._fit.arrays(), {**self._fit.facts(), **where}

    def restore(self, arrays: Arrays, facts: dict[str, Any]) -> None:
        """Continue from a :meth:`state`, when its phase is learned again."""
        self._stopped = arrays, facts
