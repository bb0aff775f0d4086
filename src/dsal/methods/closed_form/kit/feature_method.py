"""The short form of the method interface: a phase is an array of features, learned in one step."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, TypeVar, cast

import numpy as np
import torch
from numpy.typing import NDArray

from dsal.base.options import fit, keyword_hints, plain
from dsal.base.progress import Progress
from dsal.data.samples import FeatureRows, Samples
from dsal.errors import InputError
from dsal.methods.contract import Method, Phase

Features = NDArray[Any]
"""Rows of features, (n, d), as provided: float32, perhaps memory-mapped. A method that ``streams`` may also get
:class:`~dsal.data.samples.MappedRows`, and must slice the rows it needs."""

Own = TypeVar("Own", bound="FeatureMethod")


class FeatureMethod(Method):
    """A method that learns a phase of features at once.

    A subclass defines ``_learn(X, y, classes)`` and ``_scores(X)``. Samples may also be a plain array.
    """

    inputs = "features"
    streams: ClassVar[bool] = False
    """Whether ``_learn``, ``_scores`` and ``_predict`` slice their rows, so that the rows can stay on disk."""
    dtype: ClassVar[type[np.floating[Any]] | None] = None
    """Type that features are converted to before scoring; None for no conversion."""

    def learn_rows(self, X: Features, y: NDArray[np.int64], classes: Sequence[int]) -> None:
        """Learn one phase: features X (n, d) of positions y (n,) among ``classes``; see :meth:`Method.learn`."""
        for _ in self.learn(Phase(0, classes, FeatureRows(X, torch.from_numpy(y)))):
            pass

    def options(self) -> dict[str, Any]:
        """Return the options by name, as JSON values."""
        return {name: plain(name, getattr(self, name)) for name in keyword_hints(type(self))}

    @classmethod
    def with_options(cls: type[Own], options: Mapping[str, Any]) -> Own:
        """Return a new method with the options that :meth:`options` returned."""
        hints = keyword_hints(cls)
        return cls(**{name: fit(name, value, hints[name]) for name, value in options.items()})

    def _steps(self, phase: Phase) -> Iterator[Progress]:
        self._learn(self._array(phase.samples), phase.samples.labels.numpy(), phase.classes)
        yield from ()  # no progress: the phase is learned in one step, and cannot be resumed within it

    @abstractmethod
    def _learn(self, X: Features, y: NDArray[np.int64], classes: Sequence[int]) -> None:
        """Learn one phase; the arguments have been validated."""

    def scores(self, samples: Samples | Features) -> NDArray[np.floating[Any]]:
        return self._scores(self._ready(samples))

    def predict(self, samples: Samples | Features) -> NDArray[np.int64]:
        return self._predict(self._ready(samples))

    @abstractmethod
    def _scores(self, X: Any) -> NDArray[np.floating[Any]]:
        """Return scores (n, classes_seen) of features (n, d); at least one class has been seen."""

    def _predict(self, X: Any) -> NDArray[np.int64]:
        """Return the class with the largest score (n,); override this if there is a faster way."""
        best: NDArray[np.int64] = self._scores(X).argmax(axis=1)
        return best

    def _ready(self, samples: Samples | Features) -> Features:
        if not self.classes_seen:
            raise InputError("nothing has been learned yet")
        return self._array(samples) if self.dtype is None else np.asarray(self._array(samples), dtype=self.dtype)

    def _array(self, samples: Samples | Features) -> Features:
        """Return the features as one array (n, d)."""
        if isinstance(samples, np.ndarray):
            return samples
        if not isinstance(samples, FeatureRows):
            raise InputError(f"expected features, got {type(samples).__name__}: extract them with a backbone first")
        return cast(Features, samples.x) if self.streams else np.asarray(samples.x)
