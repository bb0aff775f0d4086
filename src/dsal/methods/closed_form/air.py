"""AIR: analytic imbalance rectifier (Fang et al., 2024), ridge regression in which every class has equal weight."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from dsal.analytic.expansion import RandomProjection
from dsal.base.options import EXPANSION_SIZE, GAMMA
from dsal.errors import InputError
from dsal.methods.closed_form.kit.feature_method import COUNTS, Features, Labels, keeps, nothing
from dsal.methods.closed_form.kit.gram import GramRidge


class AIR(GramRidge):
    """ACIL with samples weighted by s / n_y, for n_y samples in their class and s the harmonic mean of all n_c.

    G = sum_c X_c^T X_c / n_c and Q = sum_c X_c^T Y_c / n_c are additive, and the common factor s, which changes with
    every new class, moves into the penalty: W = (G + gamma / s I)^-1 Q. The original keeps a matrix X_c^T X_c for each
    class, so a class may return with more samples; the sums here cannot be reweighted, so it may not. For classes of
    equal size this is ACIL.

    Args:
        expansion_size: d_B, of the same random expansion as ACIL's.
        gamma: ridge penalty.
        seed: seed of the expansion.
    """

    name = "air"
    title = "AIR"

    learned = keeps(counts_=COUNTS, **GramRidge.learned)
    seed_varies = "the random expansion"
    trials = tuple({"gamma": value} for value in (0.1, 0.01, 1.0, 10.0, 100.0, 1000.0))

    def __init__(self, *, expansion_size: int = EXPANSION_SIZE, gamma: float = GAMMA, seed: int = 0) -> None:
        if gamma <= 0.0:
            raise InputError(f"gamma must be above 0, got {gamma}")
        super().__init__(expansion_size, seed)
        self.gamma = gamma
        self.counts_: Labels = nothing(0, dtype=np.int64)

    def _learn(self, X: Features, y: NDArray[np.int64], classes: Sequence[int]) -> None:
        projection = self.projection_
        if not self.classes_seen:
            built = RandomProjection.build(X.shape[1], self.expansion_size, self.seed, torch.empty(0))
            projection = built.projection.numpy()
        counts = np.concatenate([self.counts_, np.bincount(y - classes[0], minlength=len(classes))])
        if not counts.all():
            raise InputError(f"class {counts.argmin()} of the phase has no samples, so it cannot be weighted")
        self._add(X, y, 1.0 / counts[y], len(counts), projection, self._penalty(counts))
        self.counts_ = counts

    def _penalty(self, counts: Labels | None = None) -> float:
        """Return gamma / s."""
        return float(self.gamma * (1.0 / (self.counts_ if counts is None else counts)).mean())
