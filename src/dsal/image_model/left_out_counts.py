"""Counts of leave-one-out predictions by true and predicted class. Every function returns new counts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

LeftOut: TypeAlias = "dict[str, dict[str, int]]"
"""Number of images by true class (first key) and predicted class (second key)."""


def counted(classes: Sequence[str], columns: NDArray[np.int64], answers: NDArray[np.int64]) -> LeftOut:
    """Count the predicted columns ``answers`` (n,) by true ``columns`` (n,); return no counts if there is one class."""
    found: LeftOut = {}
    if len(classes) > 1:
        pairs = Counter(zip(columns.tolist(), answers.tolist(), strict=True))
        for (column, answer), images in pairs.items():
            found.setdefault(classes[column], {})[classes[answer]] = images
    return found


def added(one: LeftOut, other: LeftOut) -> LeftOut:
    """Return the sum of both counts."""
    both = {label: dict(answers) for label, answers in one.items()}
    for label, answers in other.items():
        row = both.setdefault(label, {})
        for answer, images in answers.items():
            row[answer] = row.get(answer, 0) + images
    return both


def restricted(counts: LeftOut, classes: Collection[str]) -> LeftOut:
    """Return only the counts of these classes."""
    return {
        label: {answer: images for answer, images in answers.items() if answer in classes}
        for label, answers in counts.items()
        if label in classes
    }


def renamed(counts: LeftOut, old: str, new: str) -> LeftOut:
    """Return the counts with one class renamed."""

    def name(label: str) -> str:
        return new if label == old else label

    return {
        name(label): {name(answer): images for answer, images in answers.items()} for label, answers in counts.items()
    }
