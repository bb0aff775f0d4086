"""The class whose median is nearest: a method for dsal."""

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import torch

from dsal.files.schema import Array
from dsal.methods import ArrayMethod, keeps


class NearestMedian(ArrayMethod):
    """Scores -|x - median_c|, by the norm of order 1 or 2."""

    name = "nearest-median"
    title = "Nearest median"  # in tables and figures

    learned = keeps(medians_=Array("float64", ("classes", "features")))  # its whole memory
    trials = ({"order": 1}, {"order": 2})  # what `dsal compare` tries out, defaults first

    def __init__(self, *, order: Literal[1, 2] = 1) -> None:
        self.order = order
        self.medians_ = np.zeros((0, 0))

    def _learn(self, X: np.ndarray[Any, Any], y: np.ndarray[Any, Any], classes: Sequence[int]) -> None:
        new = [np.median(X[y == c], axis=0) for c in classes]
        self.medians_ = np.array([*self.medians_, *new], dtype=np.float64)

    def _scores(self, X: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        return -np.stack([np.linalg.norm(X - m, ord=self.order, axis=1) for m in self.medians_], axis=1)


def cube(z: torch.Tensor) -> torch.Tensor:
    """z^3, an activation."""
    return z**3
