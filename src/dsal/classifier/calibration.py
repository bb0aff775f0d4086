"""Probabilities from logits: one temperature, fitted to leave-one-out logits without keeping any row.

Ridge outputs are not log-odds, and on learned rows they look better than they are. Leave-one-out logits look as bad as
those of new rows, and need no second training. The temperature T minimises the negative log-likelihood of
softmax(logits / T). As old rows are gone when new ones arrive, the likelihood is summed on a fixed grid of
temperatures: a few hundred numbers that add up over phases and over merged models.

If all rows are correct, the likelihood alone would make T as small as the grid allows, and every probability 0 or 1.
So each row counts as correct with probability 1 - DOUBT only: no score claims more than about 99%. A handful of rows
says little about T: a weak prior in log T keeps it near that of photographs.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

GRID = np.logspace(-3, 2, 201)  # temperatures; neighbours differ by 6%
MOST_ROWS = 256
DOUBT = 0.01
USUAL = 0.07
"""T of photographs with one to three images per class, chosen by benchmarks/few_images.py: the centre of the prior."""
_SAMPLED = 2048  # logits drawn to estimate a calibration


def rows_wanted(weight: float) -> int:
    """Return how many rows to use of a phase of this many rows.

    All of a small phase; of a large one, few enough to be cheap compared with learning.
    """
    return min(MOST_ROWS, max(64, 16 + int(weight) // 32))


def as_new(
    logits: NDArray[np.float64],
    columns: NDArray[np.int64],
    counts: NDArray[np.float64],
    removed: NDArray[np.float64],
    weight: NDArray[np.float64],
) -> NDArray[np.float64]:
    """Return leave-one-out logits (n x classes) corrected to those of new rows; NaN for a row alone in its class.

    Leaving out r of the n rows of a class leaves the class fewer rows than it has for new ones. So the logit of the
    class is about (n - r) / n of that of a new row, and noisier: the mean of n - r rows varies n / (n - r) times as
    much as that of n. The logit is divided by (n - r) / n, and its distance from the mean of all such logits is
    multiplied by the square root of (n - r) / n.

    Args:
        logits: leave-one-out logits (n x classes).
        columns: the true column of each row (n,).
        counts: total weight of the rows of each row's class (n,).
        removed: weight that was left out of each row (n,).
        weight: weight of each row (n,).
    """
    rows, kept = np.arange(len(columns)), 1.0 - removed / counts
    kept = np.where(kept > 1e-9, kept, np.nan)
    own = logits[rows, columns] / kept
    usable = np.isfinite(own)
    mean = np.average(own[usable], weights=weight[usable]) if usable.any() else 0.0
    corrected = logits.copy()
    corrected[rows, columns] = mean + np.sqrt(kept) * (own - mean)
    return corrected


@dataclass(frozen=True, eq=False)
class Calibration:
    """The negative log-likelihood at every temperature of the grid, summed over all phases.

    >>> logits = np.array([[2.0, 0.0], [2.0, 0.0], [2.0, 0.0], [0.0, 2.0]])
    >>> right_three_times_of_four = np.array([0, 0, 0, 0])
    >>> calibration = Calibration().plus(logits, right_three_times_of_four, np.ones(4), total=4e4)
    >>> right = 0.75 * (1 - DOUBT) + 0.25 * DOUBT
    >>> round(calibration.temperature, 2), round(float(2 / np.log(right / (1 - right))), 2)
    (1.87, 1.87)
    """

    losses: NDArray[np.float64] = field(default_factory=lambda: np.zeros(len(GRID)))

    def plus(
        self, logits: NDArray[np.float64], columns: NDArray[np.int64], weight: NDArray[np.float64], total: float
    ) -> Calibration:
        """Return the calibration with rows added that represent a phase.

        Args:
            logits: leave-one-out logits (n x classes).
            columns: the true column of each row (n,).
            weight: weight of each row (n,).
            total: weight of the phase that the rows together represent.
        """
        usable = np.isfinite(logits).all(1)  # fails for a row that is alone in its direction
        if not usable.any():
            return self
        logits, columns = logits[usable], columns[usable]
        weight = weight[usable] * (total / weight[usable].sum())
        centred = logits - logits.max(1, keepdims=True)
        chosen = centred[np.arange(len(logits)), columns]
        others = (centred.sum(1) - chosen) / max(logits.shape[1] - 1, 1)
        target = (1 - DOUBT) * chosen + DOUBT * others
        losses = [weight @ (np.log(np.exp(centred / t).sum(1)) - target / t) for t in GRID]
        return Calibration(self.losses + losses)

    @classmethod
    def estimated(
        cls, means: NDArray[np.float64], covariance: NDArray[np.float64], counts: NDArray[np.float64]
    ) -> Calibration:
        """Return the calibration of logits that are normally distributed in each class, where no rows are available.

        Args:
            means: the mean logits of each class's rows (classes x classes).
            covariance: of the logits within classes (classes x classes).
            counts: number of rows of each class (classes,).
        """
        random = np.random.RandomState(0)
        columns = random.choice(len(counts), _SAMPLED, p=counts / counts.sum())
        values, vectors = np.linalg.eigh(covariance)
        noise = random.standard_normal((_SAMPLED, len(counts))) * np.sqrt(values.clip(0.0))
        return cls().plus(means[columns] + noise @ vectors.T, columns, np.ones(_SAMPLED), float(counts.sum()))

    def merged(self, other: Calibration) -> Calibration:
        """Return the calibration of both models' rows together."""
        return Calibration(self.losses + other.losses)

    @property
    def temperature(self) -> float:
        """T of the smallest loss with the prior, (log T - log USUAL)^2, refined between grid points by a parabola."""
        losses = self.losses + np.log(GRID / USUAL) ** 2
        best = int(losses.argmin())
        if best in (0, len(GRID) - 1):
            return float(GRID[best])
        before, here, after = losses[best - 1 : best + 2]
        shift = 0.5 * (before - after) / (before - 2 * here + after)
        return float(GRID[best] * (GRID[1] / GRID[0]) ** shift)
