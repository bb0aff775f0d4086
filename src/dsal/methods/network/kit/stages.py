"""The training stages of a phase: most methods have one, some fine-tune or compress afterwards."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from numpy.typing import NDArray
from torch import nn

from dsal.base.progress import Progress
from dsal.data.samples import Samples
from dsal.errors import InputError
from dsal.training.fit import Fit, Loss

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
