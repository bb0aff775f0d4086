"""The base classes of methods on frozen features: a phase is an array of features, learned in one step."""

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
from dsal.files.schema import Array as Kept
from dsal.files.schema import check_arrays
from dsal.methods.contract import Method, Phase, State

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


Array = NDArray[np.float64]
Labels = NDArray[np.int64]

Stored = TypeVar("Stored", bound="ArrayMethod")
COUNTS = Kept("int64", ("classes",), low=1)
MEANS = Kept("float64", ("classes", "features"))
LINEAR = Kept("float32", ("classes", "features and a bias"))


def keeps(**arrays: Kept) -> Mapping[str, Kept]:
    """Return the arrays of a method by name, for :attr:`ArrayMethod.learned`."""
    return arrays


class ArrayMethod(FeatureMethod):
    """A method on features that keeps the arrays named in ``learned``, and its options under their own names.

    A subclass sets the arrays in its constructor, without rows, and then only in ``_learn``.
    """

    learned: ClassVar[Mapping[str, Kept]]
    """The arrays and their expected types and shapes after learning; an axis may have the name of an option."""
    keeps_samples: ClassVar[bool] = False
    dtype = np.float64

    @property
    def exemplar_free(self) -> bool:
        return not self.keeps_samples

    @property
    def classes_seen(self) -> int:
        for name, kept in self.learned.items():
            if kept.shape and "classes" in kept.shape:
                return int(getattr(self, name).shape[kept.shape.index("classes")])
        raise NotImplementedError("no array in `learned` has an axis 'classes': override `classes_seen`")

    @abstractmethod
    def _scores(self, X: Array) -> Array:
        """Return scores (n, classes_seen) of features (n, d); at least one class has been seen."""

    def _ready(self, samples: Samples | Features) -> Features:
        X = super()._ready(samples)
        for name, kept in self.learned.items():
            if kept.shape and "features" in kept.shape:
                width = getattr(self, name).shape[kept.shape.index("features")]
                if X.ndim != 2 or X.shape[1] != width:
                    raise InputError(f"expected features of shape (n, {width}), got {X.shape}")
        return X

    def state(self) -> State:
        return State({name: getattr(self, name) for name in self.learned}, self.options())

    @classmethod
    def from_state(cls: type[Stored], state: State) -> Stored:
        method = cls.with_options(state.facts)
        if any(array.size for array in state.arrays.values() if array.ndim):
            sizes = {name: value for name, value in state.facts.items() if type(value) is int}
            check_arrays(state.arrays, cls.learned, sizes)
            for name, array in state.arrays.items():
                setattr(method, name, array)
            method.check_learned()
        return method

    def check_learned(self) -> None:
        """Raise :class:`InputError` if arrays read from a file are inconsistent; their shapes are already checked."""


def nothing(*shape: int, dtype: type = np.float64) -> NDArray[Any]:
    """Return an array that has not been learned yet: without rows, and by default without columns."""
    return np.zeros(shape or (0, 0), dtype=dtype)


def grown(array: NDArray[Any], *shape: int) -> NDArray[Any]:
    """Return a copy with zeros appended along each axis, up to ``shape``.

    >>> grown(np.array([[1, 2]]), 2, 3).tolist()
    [[1, 2, 0], [0, 0, 0]]
    """
    larger = np.zeros(shape, dtype=array.dtype)
    larger[tuple(slice(length) for length in array.shape)] = array
    return larger
