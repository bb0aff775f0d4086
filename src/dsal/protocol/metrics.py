"""Metrics, as functions of how many test samples of each class were classified correctly. Accuracies are in percent.

Throughout, ``tallies[k]`` holds the counts after phase k, class by class, for all classes seen, in order of arrival;
a confusion matrix (true x predicted) may be passed instead. ``groups[k]`` is the range of the classes that arrived in
phase k; if not every phase was tested, k numbers the tests. a(k, j) is the accuracy on the classes of
group j after phase k, with all classes seen so far competing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class MeanStd:
    """A mean over runs, and their sample standard deviation; None if there is one run only.

    >>> str(MeanStd(58.256, 0.091)), str(MeanStd(1.0)), MeanStd(58.256, 0.091).text("±")
    ('58.26 ± 0.09', '1.00', '58.26±0.09')
    """

    mean: float
    std: float | None = None

    @classmethod
    def of(cls, record: Mapping[str, Any]) -> MeanStd:
        """Read what :func:`mean_std` returned."""
        return cls(record["mean"], record["std"] if len(record["values"]) > 1 else None)

    def text(self, between: str = " ± ") -> str:
        """Format with two decimals."""
        return f"{self.mean:.2f}" if self.std is None else f"{self.mean:.2f}{between}{self.std:.2f}"

    def __str__(self) -> str:
        return self.text()


def mean_std(values: Sequence[float]) -> dict[str, Any]:
    """Return mean and sample standard deviation over seeds (0 for one seed), and the values, as JSON values."""
    std = float(np.std(values, ddof=1)) if len(values) > 1 else 0.0
    return {"mean": float(np.mean(values)), "std": std, "values": list(values)}


@dataclass(frozen=True, eq=False)
class Tally:
    """Test samples of each class seen.

    Attributes:
        hits: number classified correctly, (seen,).
        totals: number of all, (seen,).
    """

    hits: NDArray[np.integer]
    totals: NDArray[np.integer]

    def __len__(self) -> int:
        return len(self.hits)

    @classmethod
    def of(cls, counts: Counts) -> Tally:
        """Return the tally of a confusion matrix (seen, seen); return a tally unchanged."""
        return counts if isinstance(counts, Tally) else cls(counts.diagonal().copy(), counts.sum(axis=1))


Counts: TypeAlias = "Tally | NDArray[np.integer]"


def confusion_counts(true: NDArray[np.int64], predicted: NDArray[np.int64], classes: int) -> NDArray[np.int32]:
    """Count (true, predicted) pairs of positions below ``classes``: (classes, classes).

    >>> confusion_counts(np.array([0, 0, 1]), np.array([0, 1, 1]), 2).tolist()
    [[1, 1], [0, 1]]
    """
    pairs = np.bincount(true * classes + predicted, minlength=classes * classes)
    return pairs.reshape(classes, classes).astype(np.int32)


def accuracy(counts: Counts, group: range | None = None) -> float:
    """Return the percentage classified correctly, over all classes or over the true classes in ``group``.

    >>> accuracy(np.array([[3, 1], [2, 2]])), accuracy(np.array([[3, 1], [2, 2]]), range(1, 2))
    (62.5, 50.0)
    """
    tally = Tally.of(counts)
    inside = slice(None) if group is None else slice(group.start, group.stop)
    return 100 * int(tally.hits[inside].sum()) / int(tally.totals[inside].sum())


def average_accuracy(tallies: Sequence[Counts]) -> float:
    """Return the average incremental accuracy: the mean of the accuracies after phases 0..K, phase 0 included."""
    return float(np.mean([accuracy(tally) for tally in tallies]))


def forgetting(tallies: Sequence[Counts], groups: Sequence[range]) -> float | None:
    """Return the mean over groups j = 0..K-1 of max over k = j..K-1 of a(k, j), minus a(K, j); None if K = 0.

    It is positive if old classes got worse. Some of that is unavoidable: classes that arrive later compete.
    """
    last = len(groups) - 1
    if not last:
        return None
    best = np.full(last, -np.inf)
    for k in range(last):
        known = _by_group(tallies[k], groups[: k + 1])
        best[: k + 1] = np.maximum(best[: k + 1], known)
    return float(np.mean(best - _by_group(tallies[last], groups[:last])))


def backward_transfer(tallies: Sequence[Counts], groups: Sequence[range]) -> float | None:
    """Return the mean over groups j = 0..K-1 of a(K, j) - a(j, j), negative if later phases do harm; None if K = 0."""
    last = len(groups) - 1
    if not last:
        return None
    first = [accuracy(tallies[j], groups[j]) for j in range(last)]
    return float(np.mean(_by_group(tallies[last], groups[:last]) - first))


def new_accuracy(counts: Counts, base: range) -> float | None:
    """Return the accuracy on the classes that arrived after phase 0 (plasticity); None if there are none yet."""
    return accuracy(counts, range(base.stop, len(counts))) if len(counts) > base.stop else None


def _by_group(counts: Counts, groups: Sequence[range]) -> NDArray[np.float64]:
    """Return a(k, j) of one phase k for each group j: (groups,). One by one, 500 groups would take seconds."""
    tally = Tally.of(counts)
    starts, stops = ([getattr(group, end) for group in groups] for end in ("start", "stop"))
    hits, totals = (np.concatenate([[0], np.cumsum(each)]) for each in (tally.hits, tally.totals))
    found: NDArray[np.float64] = 100 * (hits[stops] - hits[starts]) / (totals[stops] - totals[starts])
    return found


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
