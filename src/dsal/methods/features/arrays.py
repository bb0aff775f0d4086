"""What most methods on frozen features share: their whole memory is a few arrays."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dsal.hints import fit, keyword_hints, plain
from dsal.methods.contract import Self, State
from dsal.methods.features.method import FeatureMethod

Array = NDArray[np.float64]
Labels = NDArray[np.int64]


class ArrayMethod(FeatureMethod):
    """A method on features that keeps the arrays named in ``learned``, and its options under their own names.

    A subclass sets the arrays in its constructor, with no rows yet, and afterwards in ``_learn`` alone.
    """

    learned: ClassVar[tuple[str, ...]]
    keeps_samples: ClassVar[bool] = False
    dtype = np.float64

    @property
    def exemplar_free(self) -> bool:
        return not self.keeps_samples

    @abstractmethod
    def _scores(self, X: Array) -> Array:
        """Scores (n, classes_seen) of features (n, d); at least one class has been seen."""

    def state(self) -> State:
        options = {name: plain(name, getattr(self, name)) for name in keyword_hints(type(self))}
        return State({name: getattr(self, name) for name in self.learned}, options)

    @classmethod
    def from_state(cls: type[Self], state: State) -> Self:
        hints = keyword_hints(cls)
        method = cls(**{name: fit(name, value, hints[name]) for name, value in state.facts.items()})
        for name, array in state.arrays.items():
            setattr(method, name, array)
        return method


def nothing(*shape: int, dtype: type = np.float64) -> NDArray[Any]:
    """An array that is yet to be learned: of no rows, by default of no columns either."""
    return np.zeros(shape or (0, 0), dtype=dtype)


def grown(array: NDArray[Any], *shape: int) -> NDArray[Any]:
    """A copy with zeros appended along each axis, up to ``shape``.

    >>> grown(np.array([[1, 2]]), 2, 3).tolist()
    [[1, 2, 0], [0, 0, 0]]
    """
    larger = np.zeros(shape, dtype=array.dtype)
    larger[tuple(slice(length) for length in array.shape)] = array
    return larger
