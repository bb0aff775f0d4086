"""The predictor of image models: from features to logits, probabilities, the most likely classes and novelty.

Python, ``dsal predict`` and ``dsal serve`` all predict with it, so their answers are equal, bit for bit. It needs only
NumPy. It computes in float32, in which the features come; what is learned is float64.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dsal.analytic.combine import combined
from dsal.errors import InputError
from dsal.image_model.novelty import RelativeDistance
from dsal.image_model.novelty_reference import NoveltyReference
from dsal.image_model.outcomes import Prediction

Single: TypeAlias = NDArray[np.float32]
Head: TypeAlias = Callable[[Single], tuple[Single, Single]]
"""Maps features (n, d) to logits (n, c): those of the main stream, and those of both streams."""

ACTIVATIONS: dict[str, Callable[[Single], Single]] = {
    "relu": lambda z: np.maximum(z, 0.0),
    "tanh": np.tanh,
    "identity": lambda z: z,
}
"""Activations that NumPy knows; models with others predict with PyTorch."""
_ROWS = 8  # scored at once, never more nor fewer: BLAS rounds differently for other numbers of rows


class LightHead:
    """Both streams on a random projection, in NumPy.

    Args:
        projection: (d, d_B).
        main_activation: name of sigma_M.
        main: W_M (d_B, c).
        activation: name of sigma_C.
        comp: W_C (d_B, c), or None to predict with the main stream alone.
        compensation: C.
    """

    def __init__(
        self,
        projection: NDArray[np.floating],
        main_activation: str,
        main: NDArray[np.floating],
        activation: str,
        comp: NDArray[np.floating] | None,
        compensation: float,
    ) -> None:
        self.projection, self.main = _single(projection), _single(main)
        self.comp = None if comp is None or not compensation else _single(comp)
        self.main_activation, self.activation = ACTIVATIONS[main_activation], ACTIVATIONS[activation]
        self.compensation = compensation

    def __call__(self, x: Single) -> tuple[Single, Single]:
        """Return the logits (n, c) of the main stream and of both, for features (n, d); the expansion is shared."""
        z = x @ self.projection
        main = self.main_activation(z) @ self.main
        if self.comp is None:
            return main, main
        return main, combined(main, self.activation(z) @ self.comp, self.compensation)


class Scores(NamedTuple):
    """Scores of n images."""

    logits: Single  # (n, c)
    probabilities: NDArray[np.float64]  # (n, c)
    novelty: NDArray[np.float64]  # (n,), NaN if there is no reference yet

    def take(self, rows: list[int]) -> Scores:
        """Return the scores of some of the images."""
        return Scores(self.logits[rows], self.probabilities[rows], self.novelty[rows])


@dataclass(frozen=True, eq=False)
class Predictor:
    """Everything needed to make predictions from features.

    Attributes:
        classes: labels in the order of the logits.
        head: maps features to logits.
        temperature: of the probabilities.
        distance: distance of features from the classes, used to rate novelty.
        reference: scores of images of known classes, used to rate novelty.
    """

    classes: tuple[str, ...]
    head: Head
    temperature: float
    distance: RelativeDistance
    reference: NoveltyReference

    def scores(self, x: Single) -> Scores:
        """Return the scores of features (n, d); those of a row do not depend on the other rows."""
        padded = np.zeros((max(-(-len(x) // _ROWS), 1) * _ROWS, x.shape[1]), np.float32)
        padded[: len(x)] = x
        blocks = [self._scores(padded[start : start + _ROWS]) for start in range(0, len(padded), _ROWS)]
        logits, likely, novelty = map(np.concatenate, zip(*blocks, strict=True))
        return Scores(logits[: len(x)], likely[: len(x)], novelty[: len(x)])

    def predictions(
        self, scores: Scores, paths: Sequence[Path | None], *, top_k: int, threshold: float
    ) -> Iterator[Prediction]:
        """Yield the predictions for images with these scores and paths; arguments as in ``ImageModel.predict``."""
        for path, likely, novelty in zip(paths, scores.probabilities, scores.novelty.tolist(), strict=True):
            best = np.argsort(-likely, kind="stable")[:top_k]
            ranked = tuple(zip((self.classes[column] for column in best), likely[best].tolist(), strict=True))
            yield Prediction(path, *ranked[0], ranked, novelty=novelty, novel=novelty > threshold)

    def _scores(self, x: Single) -> Scores:
        main, logits = self.head(x)
        z = (logits - logits.max(1, keepdims=True)).astype(np.float64) / self.temperature
        likely = np.exp(z)
        likely /= likely.sum(1, keepdims=True)
        novelty = self.reference.novelty(main.max(1).astype(np.float64), self.distance(x))
        return Scores(logits, likely, novelty)


def check_question(top_k: int, threshold: float) -> None:
    """Raise InputError if a value is out of range."""
    if not 0 <= threshold <= 1:
        raise InputError(f"the novelty threshold must be between 0 and 1, got {threshold}")
    if top_k < 1:
        raise InputError(f"top_k must be at least 1, got {top_k}")


def _single(array: NDArray[np.floating]) -> Single:
    """Return the array in float32 and in C order: products with other orders round differently."""
    return np.ascontiguousarray(array, dtype=np.float32)
