"""The base class of methods on frozen features whose whole memory is a few arrays."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, TypeVar

import numpy as np
from numpy.typing import NDArray

from dsal.data.samples import Samples
from dsal.errors import InputError
from dsal.files.schema import Array as Kept
from dsal.files.schema import check_arrays, triangle
from dsal.methods.closed_form.kit.feature_method import FeatureMethod, Features
from dsal.methods.contract import State

Array = NDArray[np.float64]
Labels = NDArray[np.int64]

Own = TypeVar("Own", bound="ArrayMethod")
COUNTS = Kept("int64", ("classes",), low=1)
MEANS = Kept("float64", ("classes", "features"))
PROJECTION = Kept("float64", ("features", "expansion_size"))
GRAM = Kept("float64", (triangle("expansion_size"),))
TARGETS = Kept("float64", ("expansion_size", "classes"))
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
    def from_state(cls: type[Own], state: State) -> Own:
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
