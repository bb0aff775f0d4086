"""Scenarios: which classes arrive in which phase. Integers only, for images, cached features and tests alike.

Every class has a *position*, its place in the class order. Phases are ranges of positions, so the classes seen after
phase k are always positions 0 .. seen(k) - 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from dsal.errors import InputError

Labels = Tensor | NDArray[np.integer] | Sequence[int]


def split_phases(classes: int, base: int | None, phases: int) -> list[range]:
    """Split positions into phase 0 (``base`` of them) and ``phases`` further phases, dropping none.

    Args:
        classes: total number of classes.
        base: classes of phase 0; None for half of them, rounded up.
        phases: K, the number of phases after phase 0 (0 only if all classes are base classes). If K does
            not divide the rest, the first phases take one class more.

    Returns:
        K + 1 consecutive ranges of positions, together ``range(classes)``.

    >>> split_phases(10, 4, 4)
    [range(0, 4), range(4, 6), range(6, 8), range(8, 9), range(9, 10)]
    """
    if classes < 1:
        raise InputError(f"a scenario needs at least one class, got {classes}")
    base = (classes + 1) // 2 if base is None else base
    if not 1 <= base <= classes:
        raise InputError(f"base classes must be from 1 to {classes}, the number of classes; got {base}")
    rest = classes - base
    fewest = min(rest, 1)
    if not fewest <= phases <= rest:
        raise InputError(
            f"the {rest} classes left after {base} base classes can fill {fewest} to {rest} phases, not {phases}"
        )
    size, larger = divmod(rest, max(phases, 1))
    starts = [base + k * size + min(k, larger) for k in range(phases + 1)]
    return [range(base), *(range(start, stop) for start, stop in pairwise(starts))]


@dataclass(frozen=True)
class Scenario:
    """A class order cut into phases.

    Attributes:
        order: data-set labels by position, a permutation of 0 .. classes - 1.
        phases: consecutive ranges of positions; phase 0 is the base.
    """

    order: tuple[int, ...]
    phases: tuple[range, ...]

    def __post_init__(self) -> None:
        if sorted(self.order) != list(range(len(self.order))):
            raise InputError("a class order must name every label from 0 up exactly once")
        if [p for phase in self.phases for p in phase] != list(range(len(self.order))) or not all(self.phases):
            raise InputError("phases must be non-empty ranges that follow one another and cover every class")

    @classmethod
    def deal(cls, classes: int, *, phases: int, base: int | None = None, order: Order = "natural") -> Scenario:
        """Build the scenario of :func:`class_order` and :func:`split_phases`."""
        return cls(class_order(order, classes), tuple(split_phases(classes, base, phases)))

    @property
    def last(self) -> int:
        """K, the number of the last phase."""
        return len(self.phases) - 1

    def seen(self, k: int) -> int:
        """Return the number of classes seen after phase k."""
        return self.phases[self._phase(k)].stop

    def labels(self, k: int) -> tuple[int, ...]:
        """Return the data-set labels of the classes of phase k."""
        return tuple(self.order[p] for p in self.phases[self._phase(k)])

    def positions(self, labels: Labels) -> NDArray[np.int64]:
        """Map data-set labels (N,) to positions (N,)."""
        given = np.asarray(labels)
        if given.ndim != 1 or (given.size and not np.issubdtype(given.dtype, np.integer)):
            raise InputError(f"labels must be integers of shape (N,), got {given.dtype} of shape {given.shape}")
        if given.size and not 0 <= given.min() <= given.max() < len(self.order):
            raise InputError(
                f"labels must be from 0 to {len(self.order) - 1}, got values from {given.min()} to {given.max()}"
            )
        position = np.empty(len(self.order), dtype=np.int64)
        position[list(self.order)] = np.arange(len(self.order))
        return position[given.astype(np.int64)]

    def phase_rows(self, labels: Labels, k: int) -> NDArray[np.int64]:
        """Return rows whose class arrives in phase k, in ascending order; ``labels`` are data-set labels (N,)."""
        phase, position = self.phases[self._phase(k)], self.positions(labels)
        return np.flatnonzero((position >= phase.start) & (position < phase.stop))

    def phase_sizes(self, labels: Labels) -> list[int]:
        """Return the number of rows of each phase; ``labels`` are data-set labels (N,)."""
        by_class = np.bincount(self.positions(labels), minlength=len(self.order))
        return [int(by_class[phase.start : phase.stop].sum()) for phase in self.phases]

    def seen_rows(self, labels: Labels, k: int) -> NDArray[np.int64]:
        """Return rows whose class is seen after phase k, in ascending order; ``labels`` are data-set labels (N,)."""
        return np.flatnonzero(self.positions(labels) < self.seen(k))

    def _phase(self, k: int) -> int:
        if not 0 <= k <= self.last:
            raise InputError(f"phases are numbered 0 to {self.last}, got {k}")
        return k


Order = str | int
"""``"natural"``, or the seed of a permutation as a number or in digits (``"1993"`` is usual in the field)."""


def class_order(order: Order, classes: int) -> tuple[int, ...]:
    """Return data-set labels in order of arrival: the class at position p is ``class_order(...)[p]``.

    A seed selects the permutation that ``numpy.random.seed(seed)`` gives, which NumPy never changes.

    >>> class_order("natural", 4)
    (0, 1, 2, 3)
    >>> class_order("1993", 100)[:5]
    (68, 56, 78, 8, 23)
    """
    if classes < 1:
        raise InputError(f"a class order needs at least one class, got {classes}")
    if order == "natural":
        return tuple(range(classes))
    return tuple(np.random.RandomState(_seed(order)).permutation(classes).tolist())


def _seed(order: Order) -> int:
    seed = int(order) if isinstance(order, str) and order.isdecimal() else order
    if not isinstance(seed, int) or isinstance(seed, bool) or not 0 <= seed < 2**32:
        raise InputError(f"class order must be 'natural' or a seed from 0 to 2**32 - 1, got {order!r}")
    return seed
