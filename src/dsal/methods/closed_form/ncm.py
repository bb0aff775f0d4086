"""Nearest class mean: the baseline that every other head on the same features should beat."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from dsal.base.registry import check_name
from dsal.methods.closed_form.kit.feature_method import COUNTS, MEANS, Array, ArrayMethod, Features, keeps, nothing
from dsal.methods.closed_form.kit.geometry import squared_distances, unit_rows, update_means


class NCM(ArrayMethod):
    """Nearest class mean: the score is -|x - mean_c|^2, or the cosine of x and mean_c.

    Args:
        metric: ``euclidean`` or ``cosine``.
    """

    name = "ncm"
    title = "NCM"

    learned = keeps(counts_=COUNTS, means_=MEANS)
    takes_returning_classes = True
    trials = ({"metric": "euclidean"}, {"metric": "cosine"})

    def __init__(self, *, metric: str = "euclidean") -> None:
        check_name("metric", metric, ("euclidean", "cosine"))
        self.metric = metric
        self.counts_, self.means_ = nothing(0, dtype=np.int64), nothing()

    def _learn(self, X: Features, y: NDArray[np.int64], classes: Sequence[int]) -> None:
        rows = np.asarray(X, dtype=np.float64)
        self.counts_, self.means_ = update_means(rows, y, classes, self.counts_, self.means_)

    def _scores(self, X: Array) -> Array:
        if self.metric == "cosine":
            return unit_rows(X) @ unit_rows(self.means_).T
        return -squared_distances(X, self.means_)
