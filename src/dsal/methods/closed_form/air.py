"""AIR: analytic imbalance rectifier (Fang et al., 2024), ridge regression in which every class has equal weight."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dsal.analytic.expansion import RandomProjection
from dsal.base.options import EXPANSION_SIZE, GAMMA
from dsal.errors import InputError
from dsal.linalg.backend import backend_for
from dsal.methods.closed_form.kit.array_method import (
    COUNTS,
    GRAM,
    PROJECTION,
    TARGETS,
    Array,
    ArrayMethod,
    Labels,
    grown,
    keeps,
    nothing,
)
from dsal.methods.closed_form.kit.feature_method import Features
from dsal.methods.closed_form.kit.gram import add_rows, relu_scores, solve


class AIR(ArrayMethod):
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

    learned = keeps(counts_=COUNTS, projection_=PROJECTION, gram_=GRAM, targets_=TARGETS)
    seed_varies = "the random expansion"
    trials = tuple({"gamma": value} for value in (0.1, 0.01, 1.0, 10.0, 100.0, 1000.0))

    def __init__(self, *, expansion_size: int = EXPANSION_SIZE, gamma: float = GAMMA, seed: int = 0) -> None:
        if expansion_size < 1 or gamma <= 0.0:
            raise InputError(f"expansion_size must be 1 or more and gamma above 0, got {expansion_size}, {gamma}")
        self.expansion_size, self.gamma, self.seed = expansion_size, gamma, seed
        self.counts_ = nothing(0, dtype=np.int64)
        self.projection_, self.gram_, self.targets_ = nothing(), nothing(0), nothing()
        self._backend = backend_for("auto")
        self._weights: Tensor | None = None

    def _learn(self, X: Features, y: NDArray[np.int64], classes: Sequence[int]) -> None:
        projection = self.projection_
        if not self.classes_seen:
            built = RandomProjection.build(X.shape[1], self.expansion_size, self.seed, torch.empty(0))
            projection = built.projection.numpy()
        counts = np.concatenate([self.counts_, np.bincount(y - classes[0], minlength=len(classes))])
        if not counts.all():
            raise InputError(f"class {counts.argmin()} of the phase has no samples, so it cannot be weighted")
        targets = grown(self.targets_, self.expansion_size, len(counts))
        added = add_rows(self.gram_, targets, X, y, 1.0 / counts[y], projection, self._backend)
        self._weights = solve(*added, self._penalty(counts), self._backend)
        self.gram_, self.targets_ = added
        self.counts_, self.projection_ = counts, projection

    def _scores(self, X: Array) -> Array:
        if self._weights is None:
            self._weights = solve(self.gram_, self.targets_, self._penalty(self.counts_), self._backend)
        return relu_scores(X, self.projection_, self._weights, self._backend)

    def _penalty(self, counts: Labels) -> float:
        """Return gamma / s."""
        return float(self.gamma * (1.0 / counts).mean())
