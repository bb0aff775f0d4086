"""Metrics, as functions of confusion counts alone. Accuracies are in percent.

Throughout, ``counts[k]`` is the confusion matrix after phase k: entry (i, j) counts the test samples of class i that
were taken for class j, over all classes seen, in order of arrival, (seen, seen). ``groups[k]`` is the range of the
classes that arrived in phase k; where not every phase was tested, k numbers the tests. a(k, j) is the accuracy on the
classes of group j after phase k, with all classes seen so far competing.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Counts = NDArray[np.integer]


def confusion_counts(true: NDArray[np.int64], predicted: NDArray[np.int64], classes: int) -> NDArray[np.int32]:
    """Count (true, predicted) pairs of positions below ``classes``: (classes, classes).

    >>> confusion_counts(np.array([0, 0, 1]), np.array([0, 1, 1]), 2).tolist()
    [[1, 1], [0, 1]]
    """
    pairs = np.bincount(true * classes + predicted, minlength=classes * classes)
    return pairs.reshape(classes, classes).astype(np.int32)


def accuracy(counts: Counts, group: range | None = None) -> float:
    """Fraction classified correctly, over all classes or over the true classes in ``group``.

    >>> accuracy(np.array([[3, 1], [2, 2]])), accuracy(np.array([[3, 1], [2, 2]]), range(1, 2))
    (62.5, 50.0)
    """
    rows = range(len(counts)) if group is None else group
    inside = slice(rows.start, rows.stop)
    return 100 * int(np.trace(counts[inside, inside])) / int(counts[inside].sum())


def average_accuracy(counts: Sequence[Counts]) -> float:
    """Average incremental accuracy: the mean of the accuracies after phases 0..K, phase 0 included."""
    return float(np.mean([accuracy(c) for c in counts]))


def forgetting(counts: Sequence[Counts], groups: Sequence[range]) -> float | None:
    """Mean over groups j = 0..K-1 of max over k = j..K-1 of a(k, j), minus a(K, j). None where K = 0.

    It is positive where old classes got worse. Some of that is unavoidable: classes that arrive later compete.
    """
    last = len(groups) - 1
    drops = [
        max(accuracy(counts[k], groups[j]) for k in range(j, last)) - accuracy(counts[last], groups[j])
        for j in range(last)
    ]
    return float(np.mean(drops)) if drops else None


def backward_transfer(counts: Sequence[Counts], groups: Sequence[range]) -> float | None:
    """Mean over groups j = 0..K-1 of a(K, j) - a(j, j): negative where later phases cost. None where K = 0."""
    last = len(groups) - 1
    changes = [accuracy(counts[last], groups[j]) - accuracy(counts[j], groups[j]) for j in range(last)]
    return float(np.mean(changes)) if changes else None


def base_accuracy(counts: Counts, base: range) -> float:
    """Accuracy on the classes of phase 0 (stability)."""
    return accuracy(counts, base)


def new_accuracy(counts: Counts, base: range) -> float | None:
    """Accuracy on the classes that arrived after phase 0 (plasticity); None where there are none yet."""
    return accuracy(counts, range(base.stop, len(counts))) if len(counts) > base.stop else None
