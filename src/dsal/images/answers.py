"""What a model of images answers: about a lesson, about images, about how often it is right."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Lesson:
    """What one call of :meth:`ImageModel.learn` did.

    Attributes:
        images: images learned.
        new_classes: classes that were not known before, sorted.
        known_classes: classes of the lesson that were, sorted.
        broken: what could not be read, and why.
        loo_accuracy: fraction of the lesson's images that the main stream gets right, each as if it had not been
            learned; NaN where that says nothing: with a single class, or no class with a second image.
        repeated: images left out because the same content was learned before, or comes twice in the lesson.
        moved: images left out because the same content was learned before under other labels: (image, label now,
            label then). :meth:`ImageModel.relabel` corrects them.
    """

    images: int
    new_classes: tuple[str, ...]
    known_classes: tuple[str, ...]
    broken: tuple[str, ...]
    loo_accuracy: float
    repeated: int = 0
    moved: tuple[tuple[str, str, str], ...] = ()


@dataclass(frozen=True)
class Prediction:
    """The answer for one image.

    Attributes:
        path: its file; None for an image that was not given as a file.
        label: the most likely class, whether or not the image looks like one of those taught.
        score: its probability, 0 to 1, if the image is of a known class.
        top_k: the most likely classes with their probabilities, best first.
        novelty: fraction of the images learned that look less strange than this one, 0 to 1; NaN if unknown.
        novel: whether novelty is above the threshold: rather a class never taught.
    """

    path: Path | None
    label: str
    score: float
    top_k: tuple[tuple[str, float], ...]
    novelty: float
    novel: bool


class Predictions(list[Prediction]):
    """Answers in the order of the images; ``broken`` says which could not be read, and why."""

    broken: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class Evaluation:
    """Confusion counts (true x predicted) in the order of ``classes``; images of unknown classes apart.

    Attributes:
        classes: all labels.
        confusion: counts (c, c).
        unknown: images whose class was never taught.
        unknown_flagged: how many of them were flagged as novel.
        known_flagged: how many of the others were.
        broken: what could not be read, and why.
    """

    classes: tuple[str, ...]
    confusion: NDArray[np.int64]
    unknown: int
    unknown_flagged: int
    known_flagged: int
    broken: tuple[str, ...]

    @property
    def accuracy(self) -> float:
        """Fraction of the images of known classes that are classified correctly; NaN without any."""
        total = self.confusion.sum()
        return float(np.trace(self.confusion) / total) if total else float("nan")
