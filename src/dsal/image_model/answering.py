"""Turn features into predictions: probabilities, the most likely classes and novelty. Needs only NumPy."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from dsal.data.images.decode import ImageSource
from dsal.errors import FileFormatError, InputError
from dsal.image_model.answers import Prediction
from dsal.image_model.batches import FeatureBatch
from dsal.image_model.novelty import ClassStatistics, NoveltyReference

Logits: TypeAlias = Callable[[NDArray[np.float32]], tuple[NDArray[np.float64], NDArray[np.float64]]]
"""Map features (n, d) to logits (n, c): those of the main stream, and those of both streams."""


@dataclass(frozen=True, eq=False)
class Answerer:
    """Everything needed to make predictions.

    Attributes:
        classes: labels in the order of the logits.
        logits: see :data:`Logits`.
        temperature: of the probabilities.
        statistics: sums over the features of each class.
        reference: scores of images of known classes, used to rate novelty.
    """

    classes: tuple[str, ...]
    logits: Logits
    temperature: float
    statistics: ClassStatistics
    reference: NoveltyReference

    def scores(self, x: NDArray[np.float32]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return probabilities (n, c) and novelty (n,) of features (n, d)."""
        main, logits = self.logits(x)
        z = (logits - logits.max(1, keepdims=True)) / self.temperature
        likely = np.exp(z)
        likely /= likely.sum(1, keepdims=True)
        return likely, self.reference.novelty(main.max(1), self.statistics.distances(x))

    def stream(
        self,
        batches: Iterable[FeatureBatch],
        images: Sequence[ImageSource],
        *,
        top_k: int,
        threshold: float,
    ) -> Iterator[Prediction | str]:
        """Yield predictions in the order of the images; for an image that cannot be read, yield the reason.

        Each prediction is yielded as soon as it is ready.

        Raises:
            FileFormatError: none of the images could be read.
        """
        answered, reasons = 0, list[str]()
        for batch in batches:
            reasons += batch.broken
            yield from batch.broken
            if not batch.rows:
                continue
            likely, novelty = self.scores(batch.x)
            order = np.argsort(-likely, axis=1, kind="stable")[:, :top_k]
            for row, best, chances, unusual in zip(batch.rows, order, likely, novelty, strict=True):
                ranked = tuple((self.classes[column], float(chances[column])) for column in best)
                path = source if isinstance(source := images[row], Path) else None
                answered += 1
                yield Prediction(path, *ranked[0], ranked, novelty=float(unusual), novel=bool(unusual > threshold))
        if not answered:
            raise FileFormatError(f"none of {len(images)} images can be read; first error: {reasons[0]}")


def check_question(top_k: int, threshold: float) -> None:
    """Raise InputError if a value is out of range."""
    if not 0 <= threshold <= 1:
        raise InputError(f"the novelty threshold must be between 0 and 1, got {threshold}")
    if top_k < 1:
        raise InputError(f"top_k must be at least 1, got {top_k}")
