"""FeCAM: one covariance per class, and Mahalanobis distances to the class means (Goswami et al., NeurIPS 2023)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve_triangular

from dsal.errors import InputError
from dsal.files.schema import Array as Kept
from dsal.files.schema import triangle
from dsal.methods.closed_form.kit.feature_method import (
    COUNTS,
    MEANS,
    Array,
    ArrayMethod,
    Features,
    grown,
    keeps,
    nothing,
)
from dsal.methods.closed_form.kit.geometry import (
    added_scatter,
    check_exponent,
    floor_of,
    raised,
    unit_rows,
    update_means,
)


class FeCAM(ArrayMethod):
    """The score of class c is -(x' - m')^T R_c^-1 (x' - m'), on powers of the features.

    x' and m' are the powers f^p of the sample and of the class mean, scaled to length 1. R_c is the correlation matrix
    of the shrunk covariance of the powers, S + a mean(diagonal) I + b mean(off-diagonal) (1 - I), shrunk twice; I for a
    class without spread, such as one with a single sample.

    A power needs non-negative features: see ``kit.geometry.floor_of`` for standardised ones. In the original,
    the network's own head scores phase 0; here only features are available, and the same distance is
    used.

    Args:
        power: p.
        diagonal: a.
        off_diagonal: b.
    """

    name = "fecam"
    title = "FeCAM"

    learned = keeps(
        floor_=Kept("float64", ("features",), high=0),
        counts_=COUNTS,
        means_=MEANS,
        power_means_=MEANS,
        scatters_=Kept("float64", ("classes", triangle("features"))),
    )
    takes_returning_classes = True
    trials = tuple(
        {"power": p, "diagonal": a, "off_diagonal": a}
        for p, a in ((0.5, 1.0), (0.7, 1.0), (0.7, 3.0), (0.5, 0.3), (0.7, 0.3), (0.7, 0.1))
    )

    def __init__(self, *, power: float = 0.5, diagonal: float = 1.0, off_diagonal: float = 1.0) -> None:
        check_exponent(power)
        if diagonal <= 0.0 or not 0.0 <= off_diagonal <= diagonal:
            raise InputError(f"expected 0 < diagonal and 0 <= off_diagonal <= diagonal, got {diagonal}, {off_diagonal}")
        self.power, self.diagonal, self.off_diagonal = power, diagonal, off_diagonal
        self.floor_, self.counts_ = nothing(0), nothing(0, dtype=np.int64)
        self.means_, self.power_means_ = nothing(), nothing()
        self.scatters_ = nothing()  # (c, d (d + 1) / 2): a triangle per class

    def _learn(self, X: Features, y: NDArray[np.int64], classes: Sequence[int]) -> None:
        rows = np.asarray(X, dtype=np.float64)
        floor = floor_of(rows) if not self.classes_seen else self.floor_
        powers = raised(rows, floor, self.power)
        counts, means = update_means(rows, y, classes, self.counts_, self.means_)
        _, power_means = update_means(powers, y, classes, self.counts_, self.power_means_)
        triangle = np.triu_indices(rows.shape[1])
        scatters = grown(self.scatters_, len(means), len(triangle[0]))
        for label in classes:
            scatters[label] += added_scatter(powers, y, label, self.counts_, self.power_means_)[triangle]
        self.floor_, self.counts_, self.means_ = floor, counts, means
        self.power_means_, self.scatters_ = power_means, scatters

    def _scores(self, X: Array) -> Array:
        samples = unit_rows(raised(X, self.floor_, self.power))
        centres = unit_rows(raised(self.means_, self.floor_, self.power))
        scores = np.empty((len(X), self.classes_seen))
        for label, centre in enumerate(centres):
            try:
                half = np.linalg.cholesky(self._correlation(label))
            except np.linalg.LinAlgError as error:
                raise InputError(f"the covariance of class {label} is not positive definite: raise diagonal") from error
            whitened = solve_triangular(half, (samples - centre).T, lower=True, check_finite=False)
            scores[:, label] = -np.einsum("ij,ij->j", whitened, whitened)
        return scores

    def _correlation(self, label: int) -> Array:
        """Return R_c (d, d)."""
        d = self.means_.shape[1]
        covariance = np.zeros((d, d))
        covariance[np.triu_indices(d)] = self.scatters_[label] / max(self.counts_[label] - 1, 1)
        covariance += np.triu(covariance, 1).T
        for _ in range(2):
            covariance = shrink(covariance, self.diagonal, self.off_diagonal)
        if not covariance.any():
            return np.eye(d)
        deviations = np.sqrt(np.diagonal(covariance))
        correlation: Array = covariance / np.outer(deviations, deviations)
        return correlation


def shrink(covariance: Array, diagonal: float, off_diagonal: float) -> Array:
    """Return S + a mean(diagonal) I + b mean(off-diagonal) (1 - I)."""
    d = len(covariance)
    on = np.trace(covariance) / d
    off = (covariance.sum() - np.trace(covariance)) / max(d * (d - 1), 1)
    eye = np.eye(d)
    shrunk: Array = covariance + diagonal * on * eye + off_diagonal * off * (1.0 - eye)
    return shrunk
