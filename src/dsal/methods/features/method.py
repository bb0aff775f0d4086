"""The contract of a method in its short form: a phase is an array of features, learned in one step."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray

from dsal.data.samples import FeatureRows, Samples
from dsal.errors import InputError
from dsal.methods.contract import Method, Phase
from dsal.progress import Progress

Features = NDArray[Any]
"""Rows of features, (n, d), as they come: float32, perhaps memory-mapped."""


class FeatureMethod(Method):
    """A method that learns a phase of features at once.

    A subclass has ``_learn(X, y, classes)`` and ``_scores(X)``. Whatever takes samples here also takes a plain array.
    """

    inputs = "features"
    dtype: ClassVar[type[np.floating[Any]] | None] = None
    """What features are converted to before they are scored; None leaves them as they are."""

    def learn_rows(self, X: Features, y: NDArray[np.int64], classes: Sequence[int]) -> None:
        """Learn one phase: features X (n, d) of positions y (n,) among ``classes``; see :meth:`Method.learn`."""
        for _ in self.learn(Phase(0, classes, FeatureRows(X, torch.from_numpy(y)))):
            pass

    def _steps(self, phase: Phase) -> Iterator[Progress]:
        self._learn(_array(phase.samples), phase.samples.labels.numpy(), phase.classes)
        yield from ()  # one step, at whose end the phase is over: there is nothing to resume inside it

    @abstractmethod
    def _learn(self, X: Features, y: NDArray[np.int64], classes: Sequence[int]) -> None:
        """Learn one phase whose arguments have been checked."""

    def scores(self, samples: Samples | Features) -> NDArray[np.floating[Any]]:
        return self._scores(self._ready(samples))

    def predict(self, samples: Samples | Features) -> NDArray[np.int64]:
        return self._predict(self._ready(samples))

    @abstractmethod
    def _scores(self, X: Any) -> NDArray[np.floating[Any]]:
        """Scores (n, classes_seen) of features (n, d); at least one class has been seen."""

    def _predict(self, X: Any) -> NDArray[np.int64]:
        """The class of the largest score (n,); overridden by a method that finds it faster."""
        best: NDArray[np.int64] = self._scores(X).argmax(axis=1)
        return best

    def _ready(self, samples: Samples | Features) -> Features:
        if not self.classes_seen:
            raise InputError("nothing has been learned yet")
        return _array(samples) if self.dtype is None else np.asarray(_array(samples), dtype=self.dtype)


def _array(samples: Samples | Features) -> Features:
    """The features as one array (n, d)."""
    if isinstance(samples, np.ndarray):
        return samples
    if not isinstance(samples, FeatureRows):
        raise InputError(f"expected features, got {type(samples).__name__}: extract them with a backbone first")
    return samples.x
