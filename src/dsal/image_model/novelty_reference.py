"""Novelty: how unusual an image is compared with new images of the learned classes, from sums alone.

Two signs of an unknown class are combined: the largest logit is small, as no class claims the image; and the features
are far from all classes (:mod:`dsal.image_model.novelty`). The reference is the distribution of both for new images of
known classes, *under the present model*. Rows of old classes are gone, but what the model makes of them follows from
sums (:func:`expected_logits`, :func:`expected_distances`): a mean and a spread for every class. These do not depend on
how the classes arrived. What sums cannot tell is the shape: photographs vary more than a normal distribution. So the
leave-one-out scores of every lesson are kept as counts of standardised values,

    (score - expected mean of its class) / expected spread of its class,    both under the model of that lesson,

which can be added over lessons and merged models. Multiplied by the spread and shifted by the mean that the present
model expects of each class, they are the reference. It is renewed whenever the model changes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dsal.image_model.novelty import ClassStatistics

Matrix = NDArray[np.float64]
DISTANCE_WEIGHT = 0.5  # of the distance relative to the logit, both standardised
_LOGITS = np.linspace(-1.0, 2.0, 121)  # grid edges of the largest logit and of the relative distance per feature
_DISTANCES = np.linspace(-2.0, 2.0, 161)
_STANDARD_LOGITS = np.linspace(-10.0, 10.0, 161)  # the same, standardised
_STANDARD_DISTANCES = np.linspace(-60.0, 60.0, 161)
_PRIOR_IMAGES = 5.0  # weight of the shape that photographs of other folders have
_PRIOR_MEAN, _PRIOR_SPREAD, _PRIOR_CORRELATION = (0.1, -4.0), (1.6, 8.0), -0.68
_PROBES, _SAMPLED, _MOST_SAMPLED = 16, 200, 20


class Expected(NamedTuple):
    """Mean and standard deviation of the scores of new images of each class: arrays (c, 2)."""

    logits: Matrix
    distances: Matrix


def expected_scores(
    targets: Matrix, weights: Matrix, gamma: float, trace: float, statistics: ClassStatistics
) -> Expected:
    """Return what a model expects of new images of its classes, from sums alone; some class must have two images.

    Args:
        targets: Q^T (c, d) of the main stream.
        weights: W^T (c, d).
        gamma: the ridge penalty.
        trace: tr (G + gamma I)^-1.
        statistics: sums over the features of each class.
    """
    counts = statistics.counts
    filled = counts > 0
    targets, weights = targets[filled], weights[filled]
    leverage = mean_leverage(trace, targets.shape[1], gamma, float(counts.sum()))
    logits = np.zeros((len(counts), 2))
    logits[filled] = expected_logits(targets @ weights.T, weights @ weights.T, counts[filled], gamma, leverage)
    return Expected(logits, expected_distances(statistics))


def mean_leverage(trace: float, size: int, gamma: float, rows: float) -> float:
    """Return the mean leverage of the learned rows, tr((G + gamma I)^-1 G) / n = (d - gamma tr (G + gamma I)^-1) / n.

    Args:
        trace: tr (G + gamma I)^-1.
        size: d.
        gamma: the ridge penalty.
        rows: n.
    """
    return min(max((size - gamma * trace) / rows, 0.0), 0.99)


def inverse_trace(solve: Callable[[Matrix], Matrix], size: int) -> float:
    """Estimate tr (G + gamma I)^-1 as the mean of v^T (G + gamma I)^-1 v over random vectors of signs (Hutchinson).

    Args:
        solve: returns (G + gamma I)^-1 B for B (d, m).
        size: d.
    """
    signs = _signs(size)
    return float((signs * solve(signs)).sum()) / _PROBES


def packed_trace(factor: Matrix, size: int) -> float:
    """Return :func:`inverse_trace` from the packed triangle of U, as it is in files: v^T (U^T U)^-1 v = |U^-T v|^2."""
    from scipy.linalg.blas import dtpsv

    return float(sum((dtpsv(size, factor, v, trans=1) ** 2).sum() for v in _signs(size).T)) / _PROBES


def expected_logits(products: Matrix, lengths: Matrix, counts: Matrix, gamma: float, leverage: float) -> Matrix:
    """Return mean and standard deviation (c, 2) of the largest logit of new rows of each class.

    Q holds the sums of the expanded rows of each class, so row k of F = Q^T W, divided by n_k, is the mean of the
    fitted logits of class k. As G W = Q - gamma W, the scatter of all fitted logits is W^T G W = F - gamma W^T W, of
    which F^T N^-1 F lies between the classes. A row with leverage h that is left out has the logits
    (fitted - h y) / (1 - h), here with the mean leverage. The largest of c normal logits is sampled.

    Args:
        products: F = Q^T W (c, c).
        lengths: W^T W (c, c).
        counts: n_k (c,), all positive, together more than c.
        gamma: the ridge penalty.
        leverage: mean leverage of a row.
    """
    classes, fitted = len(counts), products / counts[:, None]
    means = (fitted - leverage * np.eye(classes)) / (1 - leverage)
    within = products - gamma * lengths - fitted.T @ products
    values, vectors = np.linalg.eigh((within + within.T) / 2)
    spread = np.sqrt(np.maximum(values, 0.0) / (counts.sum() - classes)) / (1 - leverage)
    noise = np.random.default_rng(0).standard_normal((_SAMPLED, classes)) @ (vectors * spread).T
    largest = np.stack([(mean + noise).max(1) for mean in means])
    return np.stack([largest.mean(1), largest.std(1)], axis=1)


def expected_distances(statistics: ClassStatistics) -> Matrix:
    """Return mean and standard deviation (c, 2) of the distance of normal features; classes share the deviation."""
    classes = len(statistics.counts)
    x, columns = statistics.sample(min(max(2000 // classes, 2), _MOST_SAMPLED))
    distances, sampled = statistics.distances(x), np.bincount(columns, minlength=classes)
    means = np.bincount(columns, distances, classes) / np.maximum(sampled, 1)
    spread = np.sqrt(np.mean((distances - means[columns]) ** 2))
    return np.stack([means, np.full(classes, spread)], axis=1)


@dataclass(frozen=True, eq=False)
class NoveltyReference:
    """Scores of images of known classes, as counts on a grid of largest logit x distance.

    Attributes:
        counts: of the scores under the present model.
        shape: of the standardised scores of all lessons; empty in files of earlier versions.
    """

    counts: Matrix
    shape: Matrix = field(default_factory=lambda: _grid(_STANDARD_LOGITS, _STANDARD_DISTANCES))

    @classmethod
    def nothing(cls) -> NoveltyReference:
        """Return a reference without images."""
        return cls(_grid(_LOGITS, _DISTANCES))

    @classmethod
    def from_arrays(cls, counts: Matrix, shape: Matrix | None = None) -> NoveltyReference:
        """Return the reference of :meth:`arrays`; ``shape`` is missing in files of earlier versions."""
        found = cls(counts)
        if shape is not None:
            row, column = np.clip(shape[:, :2].astype(np.int64), 0, len(found.shape) - 1).T
            np.add.at(found.shape, (row, column), shape[:, 2])
        return found

    def arrays(self) -> dict[str, Matrix]:
        """Return the counts, and the occupied cells of the shape as rows (row, column, count): a few hundred."""
        row, column = np.nonzero(self.shape)
        return {"counts": self.counts, "shape": np.stack([row, column, self.shape[row, column]], axis=1)}

    def plus(self, logits: Matrix, distances: Matrix) -> NoveltyReference:
        """Add images by their largest logits (n,) and distances (n,), both leave-one-out; NaNs are ignored."""
        return NoveltyReference(_added(self.counts, logits, distances, _LOGITS, _DISTANCES), self.shape)

    def measured(
        self, logits: Matrix, distances: Matrix, columns: NDArray[np.int64], expected: Expected
    ) -> NoveltyReference:
        """Add the shape of images of the classes ``columns`` (n,); scores as in :meth:`plus`."""
        first, second = (
            (values - of[columns, 0]) / np.maximum(of[columns, 1], 1e-12)
            for values, of in zip((logits, distances), expected, strict=True)
        )
        return NoveltyReference(self.counts, _added(self.shape, first, second, _STANDARD_LOGITS, _STANDARD_DISTANCES))

    def merged(self, other: NoveltyReference) -> NoveltyReference:
        """Add what another model has measured; renew it afterwards."""
        return NoveltyReference(self.counts, self.shape + other.shape)

    def renewed(self, expected: Expected, counts: Matrix) -> NoveltyReference:
        """Return the reference under a model that expects this of its classes, which have ``counts`` images (c,)."""
        shape = self.shape + _prior()
        row, column = np.nonzero(shape)
        weight = shape[row, column] / shape.sum()
        fresh = _grid(_LOGITS, _DISTANCES)
        logits, distances = _centres(_STANDARD_LOGITS)[row], _centres(_STANDARD_DISTANCES)[column]
        for of_logits, of_distances, images in zip(*expected, counts, strict=True):
            cells = (
                _cells(of_logits[0] + of_logits[1] * logits, _LOGITS),
                _cells(of_distances[0] + of_distances[1] * distances, _DISTANCES),
            )
            np.add.at(fresh, cells, images * weight)
        return NoveltyReference(fresh, self.shape)

    def score(self, logits: Matrix, distances: Matrix) -> Matrix:
        """Return scores (n,), larger for more unusual images: distance and negative logit, standardised and added."""
        logit, distance = self.standard
        return DISTANCE_WEIGHT * (distances - distance[0]) / distance[1] - (logits - logit[0]) / logit[1]

    def novelty(self, logits: Matrix, distances: Matrix) -> Matrix:
        """Return the fraction of known images that look less unusual (n,), 0 to 1; NaN if there is no reference yet."""
        if not self.counts.any():
            return np.full(len(logits), np.nan)
        return np.interp(self.score(logits, distances), *self.known, left=0.0, right=1.0)

    @cached_property
    def standard(self) -> tuple[tuple[float, float], tuple[float, float]]:
        """Mean and standard deviation of the largest logits, and of the distances."""
        return _moments(self.counts.sum(1), _LOGITS), _moments(self.counts.sum(0), _DISTANCES)

    @cached_property
    def known(self) -> tuple[Matrix, Matrix]:
        """Scores of the known images, ascending, and the fraction of images below each."""
        row, column = np.nonzero(self.counts)
        known = self.score(_centres(_LOGITS)[row], _centres(_DISTANCES)[column])
        order = np.argsort(known, kind="stable")
        weight = self.counts[row, column][order]
        return known[order], (np.cumsum(weight) - weight / 2) / weight.sum()


def _signs(size: int) -> Matrix:
    return np.random.default_rng(0).choice([-1.0, 1.0], (size, _PROBES))


def _prior() -> Matrix:
    """Return the shape of photographs in general, as counts."""
    first, second = np.random.default_rng(0).standard_normal((2, 400))
    second = _PRIOR_CORRELATION * first + np.sqrt(1 - _PRIOR_CORRELATION**2) * second
    logits, distances = _PRIOR_MEAN[0] + _PRIOR_SPREAD[0] * first, _PRIOR_MEAN[1] + _PRIOR_SPREAD[1] * second
    empty = _grid(_STANDARD_LOGITS, _STANDARD_DISTANCES)
    return _added(empty, logits, distances, _STANDARD_LOGITS, _STANDARD_DISTANCES) * (_PRIOR_IMAGES / 400)


def _grid(rows: Matrix, columns: Matrix) -> Matrix:
    return np.zeros((len(rows) - 1, len(columns) - 1))


def _added(counts: Matrix, first: Matrix, second: Matrix, rows: Matrix, columns: Matrix) -> Matrix:
    """Return counts with pairs of values added on a grid with these edges; NaNs are ignored."""
    known = np.isfinite(first) & np.isfinite(second)
    counts = counts.copy()
    np.add.at(counts, (_cells(first[known], rows), _cells(second[known], columns)), 1.0)
    return counts


def _cells(values: Matrix, edges: Matrix) -> NDArray[np.int64]:
    """Return the grid cell of each value; the outermost cells are unbounded."""
    return np.clip(np.searchsorted(edges, values, side="right") - 1, 0, len(edges) - 2)


def _centres(edges: Matrix) -> Matrix:
    return (edges[1:] + edges[:-1]) / 2


def _moments(counts: Matrix, edges: Matrix) -> tuple[float, float]:
    """Return mean and standard deviation of grid counts; the latter is at least the width of a cell."""
    centres = _centres(edges)
    mean = float(counts @ centres / counts.sum())
    variance = float(counts @ (centres - mean) ** 2 / counts.sum())
    return mean, max(variance**0.5, float(edges[1] - edges[0]))
