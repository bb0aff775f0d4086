"""Distance of an image from the learned classes, from additive statistics. No sample is kept.

It is the relative Mahalanobis distance (Ren et al., 2021): the distance of the features to the nearest class mean,
relative to that from the overall mean, with one covariance within classes and one of all images. Counts, sums and
products of features can be added over phases and merged models, and subtracted, so means and covariance are exact in
whatever order the data arrive. :mod:`dsal.image_model.novelty_reference` says how large it is for known images.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import LinAlgError, solve_triangular

from dsal.errors import InputError
from dsal.linalg import lapack

Matrix = NDArray[np.float64]
Rows = NDArray[np.float32] | NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class ClassStatistics:
    """Sums over the features of each class, and their products over all classes.

    Attributes:
        counts: number of rows of each class (c,).
        sums: sum of their features (c, d).
        products: X^T X over all rows (d, d).
    """

    counts: Matrix
    sums: Matrix
    products: Matrix

    @classmethod
    def nothing(cls, features: int) -> ClassStatistics:
        """Return statistics without classes or rows."""
        return cls(np.zeros(0), np.zeros((0, features)), np.zeros((features, features)))

    def plus(self, x: Rows, columns: NDArray[np.int64], classes: int, sign: float = 1.0) -> ClassStatistics:
        """Add rows (``sign=1``) or subtract them (-1).

        Args:
            x: features (n, d).
            columns: the class index of each row (n,).
            classes: the number of classes.
            sign: 1 or -1.
        """
        rows = np.asarray(x, dtype=np.float64)
        grown = self.grown(classes)
        sums = grown.sums.copy()
        np.add.at(sums, columns, sign * rows)
        counts = grown.counts + sign * np.bincount(columns, minlength=classes)
        return ClassStatistics(counts, sums, self.products + sign * (rows.T @ rows))

    def merged(self, other: ClassStatistics, columns: NDArray[np.int64], classes: int) -> ClassStatistics:
        """Return the statistics of both models' rows; ``columns`` are the new indices of the other's classes."""
        grown = self.grown(classes)
        counts, sums = grown.counts.copy(), grown.sums.copy()
        counts[columns] += other.counts
        sums[columns] += other.sums
        return ClassStatistics(counts, sums, self.products + other.products)

    def kept(self, columns: NDArray[np.int64]) -> ClassStatistics:
        """Return the statistics of these classes only; the others must have no rows left."""
        return ClassStatistics(self.counts[columns], self.sums[columns], self.products)

    def without_class(self, column: int) -> ClassStatistics:
        """Remove a class whose rows are no longer available, assuming that its scatter is the average of all classes.

        The covariance within classes stays the same, and the overall covariance loses the mean of the class.
        """
        mean = self.sums[column] / max(self.counts[column], 1.0)
        filled = self.counts > 0
        within = self.products - (self.sums[filled] / self.counts[filled, None]).T @ self.sums[filled]
        products = self.products - np.outer(mean, self.sums[column])
        products -= within * (self.counts[column] / self.counts.sum())
        return ClassStatistics(np.delete(self.counts, column), np.delete(self.sums, column, axis=0), products)

    def sample(self, rows: int) -> tuple[Matrix, NDArray[np.int64]]:
        """Sample features (n, d) as new images might have, and their classes (n,): ``rows`` rows per class.

        Normally distributed with the class means and the covariance within classes; wider for classes with few images.
        """
        random, filled = np.random.default_rng(0), np.flatnonzero(self.counts > 0)
        means = self.sums[filled] / self.counts[filled, None]
        spread = np.sqrt(1 + 1 / self.counts[filled])[:, None, None]
        noise = random.standard_normal((len(filled) * rows, means.shape[1])) @ self._within.root
        x: Matrix = (means[:, None] + spread * noise.reshape(len(filled), rows, -1)).reshape(-1, means.shape[1])
        return x, np.repeat(filled, rows)

    def grown(self, classes: int) -> ClassStatistics:
        """Extend the statistics to ``classes`` classes; the new ones have no rows."""
        more = classes - len(self.counts)
        return ClassStatistics(np.pad(self.counts, (0, more)), np.pad(self.sums, ((0, more), (0, 0))), self.products)

    @property
    def have_scatter(self) -> bool:
        """Whether there is scatter within classes: some class has two rows."""
        return bool(self.counts.sum() > (self.counts > 0).sum())

    @cached_property
    def light_distance(self) -> RelativeDistance:
        """:attr:`relative_distance` in float32."""
        return self.relative_distance.single()

    def distances(self, x: Rows) -> Matrix:
        """Return the squared distance to the nearest class mean minus that to the overall mean, per feature: (n,)."""
        relative: Matrix = (self._within.squared(x).min(1) - self._overall.squared(x)[:, 0]) / x.shape[1]
        return relative

    @cached_property
    def relative_distance(self) -> RelativeDistance:
        """:meth:`distances` as a function that no longer needs the statistics; faster for many rows."""
        filled, mean = self.counts > 0, self.sums.sum(0) / max(self.counts.sum(), 1.0)
        within, overall = self._within.inverse(), self._overall.inverse()
        means = self.sums[filled] / self.counts[filled, None] - mean
        towards = means @ within
        return RelativeDistance(mean, within - overall, -2 * towards.T, (towards * means).sum(1))

    def loo_distances(self, x: Rows, columns: NDArray[np.int64]) -> Matrix:
        """Return :meth:`distances` of added rows, each as if it had not been added; NaN if it is alone in its class."""
        own = (np.cumsum(self.counts > 0) - 1)[columns]
        near = self._within.loo_squared(x, own, self.counts[columns]).min(1)
        far = self._overall.loo_squared(x, np.zeros_like(own), np.full(len(own), self.counts.sum()))[:, 0]
        relative: Matrix = (near - far) / x.shape[1]
        return relative

    @cached_property
    def _within(self) -> _Whitening:
        """Whitening by the covariance within classes, with the class means."""
        counts, sums = self.counts[self.counts > 0], self.sums[self.counts > 0]
        if not len(counts):
            raise InputError("there are no images to compare with")
        means = sums / counts[:, None]
        return _Whitening.shrunk(self.products - means.T @ sums, means, float(counts.sum()))

    @cached_property
    def _overall(self) -> _Whitening:
        """Whitening by the covariance of all rows, with their mean."""
        rows, total = float(self.counts.sum()), self.sums.sum(0)
        return _Whitening.shrunk(self.products - np.outer(total, total) / rows, total[None] / rows, rows)


@dataclass(frozen=True, eq=False)
class RelativeDistance:
    """The relative distance as a quadratic function: a few matrix products, however many classes there are.

    With y = x - mu, class means mu_c + mu, and the covariances A within classes and O overall, it is
    min_c (y - mu_c)^T A^-1 (y - mu_c) - y^T O^-1 y = y^T (A^-1 - O^-1) y + min_c (mu_c^T A^-1 mu_c - 2 y^T A^-1 mu_c).

    Attributes:
        mean: mu (d,).
        form: A^-1 - O^-1 (d, d).
        slopes: -2 A^-1 mu_c in column c (d, c).
        offsets: mu_c^T A^-1 mu_c (c,).
    """

    mean: Rows
    form: Rows
    slopes: Rows
    offsets: Rows

    def __call__(self, x: Rows) -> Matrix:
        """Return the distances (n,) of rows (n, d), divided by d."""
        y = x - self.mean
        squared = np.einsum("nd,nd->n", y @ self.form, y) + (y @ self.slopes + self.offsets).min(1)
        relative: Matrix = np.asarray(squared, dtype=np.float64) / x.shape[1]
        return relative

    def single(self) -> RelativeDistance:
        """Return it in float32: for rows in float32 five times as fast, and exact to 1e-5."""
        return RelativeDistance(*(np.asarray(part, dtype=np.float32) for part in vars(self).values()))


@dataclass(frozen=True, eq=False)
class _Whitening:
    """U with U^T U = A, the covariance; the factor of the scatter in A; and the means times U^-1 (c, d)."""

    root: Matrix
    scale: float
    means: Matrix

    @classmethod
    def shrunk(cls, scatter: Matrix, means: Matrix, rows: float) -> _Whitening:
        """Return the whitening of A = (1 - rho) S / (n - c) + rho t I.

        Here rho = d / (n + d), and t is the mean variance of a feature.
        """
        size, degrees = len(scatter), max(rows - len(means), 1.0)
        rho = size / (rows + size)
        level = float(np.trace(scatter)) / degrees / size
        scale = (1 - rho) / degrees
        root = (scale * scatter).T  # symmetric: column-major without a copy
        root[np.diag_indices(size)] += rho * level if level > 0 else 1.0  # np.eye would hold Python's lock for long
        if not lapack.cholesky_(root):
            raise LinAlgError("not positive definite")
        root = np.tril(root.T).T
        return cls(root, scale, _whitened(root, means))

    def inverse(self) -> Matrix:
        """Return A^-1 (d, d)."""
        upper = np.array(self.root, order="F")
        lapack.inverse_(upper)
        inverse: Matrix = np.triu(upper) + np.triu(upper, 1).T
        return inverse

    def squared(self, x: Rows) -> Matrix:
        """Return squared distances (n, c) of rows (n, d) to the means."""
        return self._between(_whitened(self.root, x))

    def loo_squared(self, x: Rows, own: NDArray[np.int64], counts: Matrix) -> Matrix:
        """Return squared distances (n, c) to the means, each row left out of the covariance and of its own mean.

        NaN if it is alone there.

        Without a row x, the mean mu of n rows becomes mu - r / (n - 1) and the scatter S - k r r^T, with
        r = x - mu and k = n / (n - 1): a rank-one change, so the existing factor is enough (Sherman-Morrison).

        Args:
            x: features (n, d).
            own: index of the mean that each row belongs to (n,).
            counts: number of rows of that mean (n,).
        """
        rows = _whitened(self.root, x)
        residue = rows - self.means[own]
        length = (residue**2).sum(1)
        alone = counts < 1.5
        k = counts / np.where(alone, 1.0, counts - 1)
        left = 1 - self.scale * k * length
        towards = (residue * rows).sum(1)[:, None] - residue @ self.means.T  # r^T A^-1 (x - mu_j)
        with np.errstate(divide="ignore", invalid="ignore"):
            squared: Matrix = self._between(rows) + (self.scale * k / left)[:, None] * towards**2
            squared[np.arange(len(rows)), own] = k**2 * length / left
        squared[alone | (left <= 0)] = np.nan
        return squared

    def _between(self, rows: Matrix) -> Matrix:
        """Return squared distances (n, c) between whitened rows and means."""
        products = rows @ self.means.T
        squared = (rows**2).sum(1)[:, None] - 2 * products + (self.means**2).sum(1)
        positive: Matrix = np.maximum(squared, 0.0)  # rounding can make small values negative
        return positive


def _whitened(root: Matrix, x: Rows) -> Matrix:
    white: Matrix = solve_triangular(root, np.asarray(x, dtype=np.float64).T, trans="T", check_finite=False).T
    return white
