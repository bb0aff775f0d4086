"""Distances, directions and powers of feature vectors."""

from __future__ import annotations

import numpy as np

from dsal.errors import InputError
from dsal.methods.features.arrays import Array


def unit_rows(X: Array) -> Array:
    """Rows (n, d) scaled to length 1; a row of zeros stays.

    >>> unit_rows(np.array([[3.0, 4.0], [0.0, 0.0]])).tolist()
    [[0.6, 0.8], [0.0, 0.0]]
    """
    lengths = np.linalg.norm(X, axis=1, keepdims=True)
    return X / np.where(lengths > 0, lengths, 1.0)


def squared_distances(X: Array, centres: Array) -> Array:
    """|x - c|^2 for rows x (n, d) and centres (c, d): (n, c)."""
    squares: Array = (X**2).sum(1)[:, None] - 2.0 * X @ centres.T + (centres**2).sum(1)
    return np.maximum(squares, 0.0, out=squares)


def floor_of(X: Array) -> Array:
    """What makes the columns of phase 0 non-negative when it is subtracted: their minima, where below 0: (d,).

    Features of a ReLU network that were standardised, (x - mean) / deviation, become x / deviation again, up to the
    smallest x of the column, which is 0 or nearly so. Features that are non-negative stay what they are.
    """
    lowest: Array = X.min(axis=0)
    return np.minimum(lowest, 0.0, out=lowest)


def raised(X: Array, floor: Array, exponent: float) -> Array:
    """(X - floor)^exponent, entry by entry (Tukey's ladder); what lies below the floor of phase 0 counts as 0.

    >>> raised(np.array([[-1.0, 3.0]]), np.array([-1.0, -1.0]), 0.5).tolist()
    [[0.0, 2.0]]
    """
    return np.maximum(X - floor, 0.0) ** exponent


def check_exponent(exponent: float) -> None:
    """Refuse a power that is not in (0, 1]."""
    if not 0.0 < exponent <= 1.0:
        raise InputError(f"power must be above 0 and at most 1, got {exponent}")
