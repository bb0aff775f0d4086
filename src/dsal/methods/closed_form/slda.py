"""Streaming linear discriminant analysis (Hayes and Kanan, CVPR workshops 2020)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from dsal.errors import InputError
from dsal.files.schema import Array as Kept
from dsal.methods.closed_form.kit.feature_method import COUNTS, MEANS, Array, ArrayMethod, Features, keeps, nothing
from dsal.methods.closed_form.kit.geometry import added_scatter, update_means


class SLDA(ArrayMethod):
    """Class means, and one covariance S for all classes.

    With L = ((1 - e) S + e I)^-1, the score of class c is x^T L mean_c - mean_c^T L mean_c / 2. S starts as
    scikit-learn's OAS estimate of phase 0 and continues as the average of (x - mean_y)(x - mean_y)^T over all samples.
    Class means are exact: a phase arrives as a whole, so no sample is compared with a mean that does not include it.

    Args:
        shrinkage: e.
    """

    name = "slda"
    title = "SLDA"

    learned = keeps(counts_=COUNTS, means_=MEANS, covariance_=Kept("float64", ("features", "features")))
    takes_returning_classes = True
    trials = tuple({"shrinkage": value} for value in (1e-4, 1e-2, 0.1, 0.3, 0.6, 0.9))

    def __init__(self, *, shrinkage: float = 1e-4) -> None:
        if not 0.0 < shrinkage <= 1.0:
            raise InputError(f"shrinkage must be above 0 and at most 1, got {shrinkage}")
        from sklearn.covariance import oas  # imported here to keep it out of the time of a phase

        self.shrinkage, self._oas = shrinkage, oas
        self.counts_, self.means_, self.covariance_ = nothing(0, dtype=np.int64), nothing(), nothing()

    def _learn(self, X: Features, y: NDArray[np.int64], classes: Sequence[int]) -> None:
        rows, seen = np.asarray(X, dtype=np.float64), self.counts_.sum()
        counts, means = update_means(rows, y, classes, self.counts_, self.means_)
        if seen == 0:
            self.covariance_, _ = self._oas(rows - means[y], assume_centered=True)
        else:
            scatter = sum(added_scatter(rows, y, label, self.counts_, self.means_) for label in classes)
            self.covariance_ = (seen * self.covariance_ + scatter) / (seen + len(rows))
        self.counts_, self.means_ = counts, means

    def _scores(self, X: Array) -> Array:
        spread = (1.0 - self.shrinkage) * self.covariance_ + self.shrinkage * np.eye(len(self.covariance_))
        weights = np.linalg.solve(spread, self.means_.T)  # L mean_c, (d, c)
        scores: Array = X @ weights - 0.5 * (self.means_.T * weights).sum(axis=0)
        return scores
