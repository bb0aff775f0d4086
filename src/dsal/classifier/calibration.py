"""Probabilities from logits: one temperature, fitted to leave-one-out logits without keeping any row.

Ridge outputs are not log-odds, and on learned rows they look better than they are. Leave-one-out logits look as bad as
those of new rows, and need no second training. The temperature T minimises the negative log-likelihood of
softmax(logits / T). As old rows are gone when new ones arrive, the likelihood is summed on a fixed grid of
temperatures: a few hundred numbers that add up over phases and over merged models.

If all rows are correct, the likelihood alone would make T as small as the grid allows, and every probability 0 or 1.
So each row counts as correct with probability 1 - DOUBT only: no score claims more than about 99%.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

GRID = np.logspace(-3, 2, 201)  # temperatures; neighbours differ by 6%
MOST_ROWS = 256
DOUBT = 0.01
_SAMPLED = 2048  # logits drawn to estimate a calibration


def rows_wanted(weight: float) -> int:
    """Return how many rows to use of a phase of this many rows.

    All of a small phase; of a large one, few enough to be cheap compared with learning.
    """
    return min(MOST_ROWS, max(64, 16 + int(weight) // 32))


@dataclass(frozen=True, eq=False)
class Calibration:
    """The negative log-likelihood at every temperature of the grid, summed over all phases.

    >>> logits = np.array([[2.0, 0.0], [2.0, 0.0], [2.0, 0.0], [0.0, 2.0]])
    >>> right_three_times_of_four = np.array([0, 0, 0, 0])
    >>> calibration = Calibration().plus(logits, right_three_times_of_four, np.ones(4), total=4.0)
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
        """T of the smallest loss, refined between grid points by a parabola in log T; 1 if all losses are equal."""
        best = int(self.losses.argmin())
        if np.ptp(self.losses) == 0:
            return 1.0
        if best in (0, len(GRID) - 1):
            return float(GRID[best])
        before, here, after = self.losses[best - 1 : best + 2]
        shift = 0.5 * (before - after) / (before - 2 * here + after)
        return float(GRID[best] * (GRID[1] / GRID[0]) ** shift)
