"""Counts, means and scatter of classes, exact however a class's samples are cut into phases."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from dsal.errors import InputError
from dsal.methods.arrays import Array, Labels, grown


@dataclass(frozen=True)
class ClassMoments:
    """One class after a phase."""

    label: int
    count: int
    mean: Array  # (d,)
    scatter: Array  # (d, d), what this phase adds to the sum of (x - mean)(x - mean)^T


def update_moments(X: Array, y: Labels, classes: Sequence[int], counts: Labels, means: Array) -> Iterator[ClassMoments]:
    """The moments of each class of a phase, those of earlier phases included.

    With a samples of mean m before, and b of mean m' now: mean m + (m' - m) b / (a + b), and the scatter grows by that
    of the new samples about m' plus (m' - m)(m' - m)^T a b / (a + b).

    Args:
        X: samples of the phase (n, d).
        y: their classes (n,).
        classes: of the phase, ascending.
        counts: samples so far of each class seen before (c,).
        means: their means (c, d).

    Raises:
        InputError: a class of the phase has no samples.
    """
    for label in classes:
        rows = X[y == label]
        if not len(rows):
            raise InputError(f"class {label} of the phase has no samples, so it has no mean")
        known = label < len(counts)
        before = int(counts[label]) if known else 0
        now = rows.mean(axis=0)
        step = now - means[label] if known else np.zeros_like(now)
        count = before + len(rows)
        centred = rows - now
        scatter = centred.T @ centred + np.outer(step, step) * (before * len(rows) / count)
        yield ClassMoments(label, count, now - step * (before / count), scatter)


def update_means(X: Array, y: Labels, classes: Sequence[int], counts: Labels, means: Array) -> tuple[Labels, Array]:
    """Counts (c,) and means (c, d) of all classes seen after a phase; arguments as of :func:`update_moments`."""
    return with_moments(list(update_moments(X, y, classes, counts, means)), counts, means)


def with_moments(found: Sequence[ClassMoments], counts: Labels, means: Array) -> tuple[Labels, Array]:
    """``counts`` and ``means``, grown and with the classes ``found`` replaced."""
    seen = max(found[-1].label + 1, len(counts))
    counts, means = grown(counts, seen), grown(means, seen, len(found[0].mean))
    for moments in found:
        counts[moments.label], means[moments.label] = moments.count, moments.mean
    return counts, means
