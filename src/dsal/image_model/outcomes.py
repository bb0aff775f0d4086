"""Result types of an image model: lessons, predictions, evaluations, and counts of leave-one-out predictions."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

THRESHOLD = 0.95  # novelty threshold: one in twenty images of known classes is flagged

LeftOut: TypeAlias = "dict[str, dict[str, int]]"
"""Number of images by true class (first key) and predicted class (second key)."""


@dataclass(frozen=True)
class Lesson:
    """The result of one call of :meth:`ImageModel.learn`.

    Attributes:
        images: number of images learned.
        new_classes: classes that were not known before, sorted.
        known_classes: classes of the lesson that were already known, sorted.
        broken: images that could not be read, and why.
        loo_accuracy: fraction of the lesson's images that the main stream classifies correctly, each as if it had not
            been learned; NaN with a single class, or if no class has a second image.
        repeated: number of images skipped because the same content was learned before.
        duplicates: number of images skipped because the same content occurs earlier in the lesson.
        mistaken: images of :meth:`ImageModel.learn_features` counted as wrong in :attr:`ImageModel.left_out`: (row,
            predicted class).
        moved: images skipped because the same content was learned under another label: (image, new label,
            old label). :meth:`ImageModel.relabel` corrects them.
    """

    images: int
    new_classes: tuple[str, ...]
    known_classes: tuple[str, ...]
    broken: tuple[str, ...]
    loo_accuracy: float
    repeated: int = 0
    duplicates: int = 0
    moved: tuple[tuple[str, str, str], ...] = ()
    mistaken: tuple[tuple[int, str], ...] = ()


@dataclass(frozen=True)
class Prediction:
    """The prediction for one image.

    Attributes:
        path: the image file; None if the image was not given as a file.
        label: the most likely class, even if the image is flagged as novel.
        score: probability of ``label``, 0 to 1, assuming that the image is of a known class.
        top_k: the most likely classes with their probabilities, best first.
        novelty: fraction of the learned images that look less unusual than this one, 0 to 1; NaN if there is no
            reference yet.
        novel: whether novelty is above the threshold, so that the class is probably unknown.
    """

    path: Path | None
    label: str
    score: float
    top_k: tuple[tuple[str, float], ...]
    novelty: float
    novel: bool

    def facts(self) -> dict[str, Any]:
        """Return everything except the path as JSON values; NaN becomes None."""
        return {
            "label": self.label,
            "score": self.score,
            "top_k": [{"label": label, "score": score} for label, score in self.top_k],
            "novelty": None if math.isnan(self.novelty) else self.novelty,
            "novel": self.novel,
        }


class PredictionList(list[Prediction]):
    """Predictions in the order of the images; ``broken`` lists the images that could not be read, and why."""

    broken: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class Evaluation:
    """Confusion counts (true x predicted) in the order of ``classes``; unknown classes are counted separately.

    Attributes:
        classes: all labels.
        confusion: counts (c, c).
        unknown: number of images whose class was never taught.
        unknown_flagged: how many of these were flagged as novel.
        known_flagged: how many images of known classes were flagged as novel.
        right_flagged: how many of these would have been classified correctly.
        broken: images that could not be read, and why.
    """

    classes: tuple[str, ...]
    confusion: NDArray[np.int64]
    unknown: int
    unknown_flagged: int
    known_flagged: int
    right_flagged: int
    broken: tuple[str, ...]

    @property
    def accuracy(self) -> float:
        """Fraction of the images of known classes whose most likely class is right, flagged or not; NaN without any."""
        total = self.confusion.sum()
        return float(np.trace(self.confusion) / total) if total else float("nan")

    @property
    def accepted_accuracy(self) -> float:
        """Fraction of the images of known classes that are classified correctly and not flagged; NaN without any."""
        total = self.confusion.sum()
        return float((np.trace(self.confusion) - self.right_flagged) / total) if total else float("nan")


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
    return {label: dict(Counter(one.get(label, {})) + Counter(other.get(label, {}))) for label in {**one, **other}}


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
