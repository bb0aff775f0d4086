"""Confusion counts in memory: only the nonzero cells, which are few if there are many classes.

With 1,000 classes a matrix has a million cells, some ten thousand of them nonzero. All matrices of 500 phases would
still take a hundred megabytes, so a run keeps those of some phases, evenly spaced.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

KEPT = 51
"""Number of confusion matrices a run keeps by default: all up to the paper's K = 50."""


@dataclass(frozen=True, eq=False)
class ConfusionCounts:
    """How often test samples of class i were predicted as class j.

    Attributes:
        classes: number of classes.
        cells: int64, (m,), indices i * classes + j of the nonzero cells, ascending.
        counts: int32, (m,), the values of these cells.
    """

    classes: int
    cells: NDArray[np.int64]
    counts: NDArray[np.int32]

    @classmethod
    def of(cls, matrix: NDArray[np.int32]) -> ConfusionCounts:
        """Build from a matrix, (classes, classes), true x predicted."""
        flat = matrix.ravel()
        cells = np.flatnonzero(flat)
        return cls(len(matrix), cells, flat[cells])

    def dense(self) -> NDArray[np.int32]:
        """Return the matrix, (classes, classes), true x predicted."""
        flat = np.zeros(self.classes**2, dtype=np.int32)
        flat[self.cells] = self.counts
        return flat.reshape(self.classes, self.classes)


def spread_out(n: int, most: int) -> list[int]:
    """Return at most ``most`` of the numbers below ``n``, evenly spaced, with the last and (from two on) the first.

    >>> spread_out(5, 51), spread_out(501, 3), spread_out(9, 1), spread_out(9, 0)
    ([0, 1, 2, 3, 4], [0, 250, 500], [8], [])
    """
    picked = np.linspace(n - 1, 0, min(most, n)).round().astype(int)
    return [int(number) for number in picked[::-1]]
