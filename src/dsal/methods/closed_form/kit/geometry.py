"""Means, scatter, distances, directions and powers of feature vectors."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dsal.errors import InputError
from dsal.methods.closed_form.kit.feature_method import Array, Labels, grown


def unit_rows(X: Array) -> Array:
    """Scale rows (n, d) to length 1; a row of zeros is unchanged.

    >>> unit_rows(np.array([[3.0, 4.0], [0.0, 0.0]])).tolist()
    [[0.6, 0.8], [0.0, 0.0]]
    """
    lengths = np.linalg.norm(X, axis=1, keepdims=True)
    return X / np.where(lengths > 0, lengths, 1.0)


def squared_distances(X: Array, centres: Array) -> Array:
    """Return |x - c|^2 for rows x (n, d) and centres (c, d): (n, c)."""
    squares: Array = (X**2).sum(1)[:, None] - 2.0 * X @ centres.T + (centres**2).sum(1)
    return np.maximum(squares, 0.0, out=squares)


def floor_of(X: Array) -> Array:
    """Return the column minima of phase 0, at most 0 (d,); subtracting them makes the columns non-negative.

    Standardised features of a ReLU network, (x - mean) / deviation, become x / deviation again, up to the smallest x of
    the column, which is 0 or close to it. Non-negative features are unchanged.
    """
    lowest: Array = X.min(axis=0)
    return np.minimum(lowest, 0.0, out=lowest)


def raised(X: Array, floor: Array, exponent: float) -> Array:
    """Return (X - floor)^exponent, elementwise (Tukey's ladder); values below the floor of phase 0 count as 0.

    >>> raised(np.array([[-1.0, 3.0]]), np.array([-1.0, -1.0]), 0.5).tolist()
    [[0.0, 2.0]]
    """
    return np.maximum(X - floor, 0.0) ** exponent


def check_exponent(exponent: float) -> None:
    """Raise :class:`InputError` if the power is not in (0, 1]."""
    if not 0.0 < exponent <= 1.0:
        raise InputError(f"power must be above 0 and at most 1, got {exponent}")


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
