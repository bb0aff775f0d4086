"""Ridge regression on relu(x P) whose penalty may change between phases: it keeps sums and factors them again.

A :class:`~dsal.analytic.ridge.Ridge` is cheaper, but its stored factor includes the penalty. Here the sums are
G = sum of X^T X, a triangle packed into d (d + 1) / 2 numbers, and Q = sum of X^T Y (d x classes), in float64.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from dsal.analytic.streams import one_hot
from dsal.base.memory import require
from dsal.errors import InputError
from dsal.files.schema import Array as Kept
from dsal.files.schema import triangle
from dsal.linalg.backend import Backend, LinAlgError, backend_for
from dsal.methods.closed_form.kit.feature_method import Array, ArrayMethod, Labels, grown, keeps, nothing

_BLOCK_BYTES = 2**25  # size of a block of expanded rows


class GramRidge(ArrayMethod):
    """W = (G + penalty I)^-1 Q, with G = sum of a x x^T over rows x of the expansion and their weights a.

    A subclass chooses the projection P and the weights, and says what the penalty is.
    """

    learned = keeps(
        projection_=Kept("float64", ("features", "expansion_size")),
        gram_=Kept("float64", (triangle("expansion_size"),)),
        targets_=Kept("float64", ("expansion_size", "classes")),
    )

    def __init__(self, expansion_size: int, seed: int) -> None:
        if expansion_size < 1:
            raise InputError(f"expansion_size must be 1 or more, got {expansion_size}")
        self.expansion_size, self.seed = expansion_size, seed
        self.projection_, self.gram_, self.targets_ = nothing(), nothing(0), nothing()
        self._backend = backend_for("auto")
        self._weights: Tensor | None = None

    @abstractmethod
    def _penalty(self) -> float:
        """Return the ridge penalty after the phases learned."""

    def _add(self, X: Array, y: Labels, weight: Array, classes: int, projection: Array, penalty: float) -> None:
        """Learn rows X (n, d_in) of classes y (n,) below ``classes``, each with a weight (n,)."""
        targets = grown(self.targets_, self.expansion_size, classes)
        added = add_rows(self.gram_, targets, X, y, weight, projection, self._backend)
        self._weights = solve(*added, penalty, self._backend)
        self.gram_, self.targets_ = added
        self.projection_ = projection

    def _scores(self, X: Array) -> Array:
        if self._weights is None:  # restored from a file, which holds only the sums
            self._weights = solve(self.gram_, self.targets_, self._penalty(), self._backend)
        scores = np.empty((len(X), self._weights.shape[1]))
        for rows, x in relu_blocks(X, self.projection_, self._backend):
            scores[rows] = self._backend.product(x, self._weights).cpu().numpy()
        return scores


def relu_blocks(X: Array, projection: Array, backend: Backend) -> Iterator[tuple[slice, Tensor]]:
    """Yield relu(X P) of X (n, d_in) with P (d_in, d) in blocks of rows: (slice of rows, their expansion)."""
    p = torch.from_numpy(projection).to(backend.device)
    step = max(_BLOCK_BYTES // (8 * projection.shape[1]), 64)
    for start in range(0, len(X), step):
        rows = torch.from_numpy(np.asarray(X[start : start + step], dtype=np.float64)).to(backend.device)
        yield slice(start, start + step), backend.product(rows, p).relu_()


def add_rows(
    gram: Array, targets: Array, X: Array, y: Labels, weight: Array, projection: Array, backend: Backend
) -> tuple[Array, Array]:
    """Return G and Q with rows X (n, d_in) of classes y (n,) added, each multiplied by its weight (n,).

    ``targets`` must have a column for each class; ``gram`` and ``targets`` are not changed.
    """
    size = projection.shape[1]
    require(2 * backend.squares * 8 * size**2, backend.device, f"ridge regression with expansion_size={size}")
    square = backend.unpack(gram, size) if gram.size else backend.square(size)
    sums = torch.tensor(targets, device=backend.device)
    roots = torch.from_numpy(np.sqrt(weight)).to(backend.device)[:, None]
    for rows, x in relu_blocks(X, projection, backend):
        x *= roots[rows]
        sums += backend.product(x.T, roots[rows] * targets_of(y[rows], sums.shape[1], backend))
        backend.add_rows_to_gram_(square, x)
    return backend.pack(square), sums.cpu().numpy()


def solve(gram: Array, targets: Array, penalty: float, backend: Backend) -> Tensor:
    """Return W = (G + penalty I)^-1 Q, (d x classes).

    Raises:
        InputError: the penalty is too small for float64.
    """
    try:
        factor = factored(backend.unpack(gram, len(targets)), penalty, backend)
    except LinAlgError as error:
        raise InputError(f"a ridge penalty of {penalty:g} is too small for these features: raise it") from error
    return backend.solve(factor, torch.from_numpy(targets).to(backend.device))


def factored(square: Tensor, penalty: float, backend: Backend) -> Tensor:
    """Replace the square (d x d) by the triangular factor of square + penalty I, in place, and return it."""
    square.diagonal().add_(penalty)
    backend.factor_(square)
    return square


def targets_of(y: Labels, classes: int, backend: Backend) -> Tensor:
    """Return the one-hot targets of labels y (n,): (n x classes), float64."""
    return one_hot(torch.from_numpy(y).to(backend.device), torch.arange(classes, device=backend.device))
