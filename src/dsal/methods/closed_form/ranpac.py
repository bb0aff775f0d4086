"""RanPAC's head: a Gaussian projection and a ridge penalty chosen in each phase (McDonnell et al., NeurIPS 2023)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dsal.base.options import EXPANSION_SIZE
from dsal.errors import InputError
from dsal.files.schema import Array as Kept
from dsal.linalg.backend import Backend, LinAlgError
from dsal.methods.closed_form.kit.feature_method import Array, Features, Labels, keeps
from dsal.methods.closed_form.kit.gram import GramRidge, factored, relu_blocks, targets_of

PENALTIES = tuple(10.0**e for e in range(-8, 9))


class RanPAC(GramRidge):
    """Ridge regression on relu(x P), with entries of P drawn from N(0, 1): W = (G + penalty I)^-1 Q.

    The penalty of a phase is the one of 1e-8 .. 1e8 for which a ridge on 80% of the phase's samples has the smallest
    squared error on the other 20%: nothing is left to tune. A phase with a single sample cannot be split and keeps the
    previous penalty.

    Args:
        expansion_size: width of P.
        seed: seed of P and of the split.
    """

    name = "ranpac"
    title = "RanPAC"

    learned = keeps(**GramRidge.learned, penalty_=Kept("float64", (), low=0))
    takes_returning_classes = True
    seed_varies = "the random projection and the split that chooses the penalty"

    def __init__(self, *, expansion_size: int = EXPANSION_SIZE, seed: int = 0) -> None:
        super().__init__(expansion_size, seed)
        self.penalty_: Array = np.ones(())

    def _learn(self, X: Features, y: NDArray[np.int64], classes: Sequence[int]) -> None:
        projection = self.projection_
        if not self.classes_seen:
            projection = np.random.RandomState(self.seed).standard_normal((X.shape[1], self.expansion_size))
        seen = max(self.classes_seen, classes[-1] + 1)
        order = np.random.RandomState([self.seed, self.classes_seen]).permutation(len(X))
        penalty = self.penalty_
        if len(X) > 1:
            penalty = np.array(best_penalty(X[order], y[order] - classes[0], projection, self._backend))
        self._add(X, y, np.ones(len(X)), seen, projection, float(penalty))
        self.penalty_ = penalty

    def _penalty(self) -> float:
        return float(self.penalty_)


def best_penalty(X: Array, y: Labels, projection: Array, backend: Backend) -> float:
    """Return the penalty for which the first 80% of rows X (n, d_in) best predict the classes y (n,) of the others."""
    cut = max(int(0.8 * len(X)), 1)
    classes = int(y.max()) + 1
    penalties, weights = _ridge_path(X[:cut], targets_of(y[:cut], classes, backend), projection, backend)
    errors = torch.zeros(len(penalties), dtype=torch.float64, device=backend.device)
    targets = targets_of(y[cut:], classes, backend)
    for rows, x in relu_blocks(X[cut:], projection, backend):
        predicted = backend.product(x, weights).reshape(len(x), len(penalties), classes)
        errors += ((predicted - targets[rows, None]) ** 2).sum(dim=(0, 2))
    return penalties[int(errors.argmin())]


def _ridge_path(X: Array, targets: Tensor, projection: Array, backend: Backend) -> tuple[list[float], Tensor]:
    """Return the penalties that float64 can resolve and their weights, side by side: (d x penalties * classes).

    (X^T X + penalty I)^-1 X^T Y = X^T (X X^T + penalty I)^-1 Y: the smaller of the two matrices is factored.
    """
    size = projection.shape[1]
    few = len(X) < size
    square = backend.square(len(X) if few else size)
    if few:
        expanded = torch.cat([x for _, x in relu_blocks(X, projection, backend)])
        backend.add_rows_to_gram_(square, expanded.T)
        right = targets
    else:
        right = torch.zeros(size, targets.shape[1], dtype=torch.float64, device=backend.device)
        for rows, x in relu_blocks(X, projection, backend):
            right += backend.product(x.T, targets[rows])
            backend.add_rows_to_gram_(square, x)
    kept, solutions = [], []
    for penalty in PENALTIES:
        copy = backend.square(len(square))
        try:
            solutions.append(backend.solve(factored(copy.copy_(square), penalty, backend), right))
            kept.append(penalty)
        except LinAlgError:
            continue  # the penalty is lost in rounding
    if not solutions:
        raise InputError("no ridge penalty makes the expanded features solvable: check them for extreme values")
    path = torch.cat(solutions, dim=1)
    return kept, backend.product(expanded.T, path) if few else path
