"""Counts, means and scatter of classes, exact however the samples of a class are split into phases.

With a samples of mean m before a phase, and b samples of mean m' in it, the mean after it is m + (m' - m) b / (a + b),
and the scatter, the sum of (x - mean)(x - mean)^T, grows by the scatter of the new samples about m' plus
(m' - m)(m' - m)^T a b / (a + b).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dsal.errors import InputError
from dsal.methods.closed_form.kit.array_method import Array, Labels, grown


def update_means(X: Array, y: Labels, classes: Sequence[int], counts: Labels, means: Array) -> tuple[Labels, Array]:
    """Return counts (c,) and means (c, d) of all classes seen after a phase.

    Args:
        X: samples of the phase (n, d).
        y: their classes (n,).
        classes: classes of the phase, ascending.
        counts: number of earlier samples of each class seen before (c,).
        means: means of these samples (c, d).

    Raises:
        InputError: a class of the phase has no samples.
    """
    seen = max(classes[-1] + 1, len(counts))
    counts, means = grown(counts, seen), grown(means, seen, X.shape[1])
    for label in classes:
        rows = X[y == label]
        if not len(rows):
            raise InputError(f"class {label} of the phase has no samples, so it has no mean")
        counts[label] += len(rows)
        means[label] += (rows.mean(axis=0) - means[label]) * (len(rows) / counts[label])
    return counts, means


def added_scatter(X: Array, y: Labels, label: int, counts: Labels, means: Array) -> Array:
    """Return the increase of a class's scatter (d, d) in a phase; ``counts`` and ``means`` are those before it."""
    rows = X[y == label]
    now = rows.mean(axis=0)
    scatter: Array = (rows - now).T @ (rows - now)
    if label < len(counts):
        step = now - means[label]
        scatter += np.outer(step, step) * (counts[label] * len(rows) / (counts[label] + len(rows)))
    return scatter
