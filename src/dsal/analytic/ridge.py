"""Theorem 1: ridge regression that grows phase by phase and equals joint training.

With all rows X and targets Y seen so far, the weights are those of one joint solve, eq. (9):

    W = (G + gamma I)^-1 Q,    G = sum_k X_k^T X_k  (d x d),    Q = sum_k X_k^T Y_k  (d x classes)

Both sums are additive. So the order of rows, batches and phases cannot matter, no row has to be kept, and the
recursion of eqs. (11)-(12) is one way among several to compute them. Here the state is Q and U, upper triangular with
U^T U = G + gamma I: no inverse is ever formed.

A method that raises leaves the state half changed: :mod:`dsal.analytic.ridge_state` makes it all or nothing.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Literal, TypeAlias

import torch
from torch import Tensor

from dsal.base.memory import require
from dsal.errors import InputError, PrecisionWarning
from dsal.linalg.backend import Backend, Lapack, LinAlgError

Blocks: TypeAlias = Iterable[tuple[Tensor, Tensor]]  # X (n x d) and Y (n x columns), float64
Route: TypeAlias = Literal["cholesky", "qr"]
_CONDITION = 1e12  # beyond it weights have fewer than about five correct digits
_LOST = 1e-6  # the largest relative error of the weights after unlearning rows
_QR_SLOWNESS = 1.4  # dtpqrt reaches about 70% of the flop rate of dsyrk and dpotrf

_BLOCK = 1024  # rows of another factor to subtract at a time


class IndefiniteError(InputError):
    """G + gamma I is not positive definite in float64: gamma is lost in rounding next to its largest entries."""

    def __init__(self, why: str = "gamma is too small for features of this size") -> None:
        super().__init__(
            f"G + gamma I is not positive definite in float64: {why}. Standardise the features, or raise gamma"
        )


def bytes_needed(size: int, classes: int, backend: Backend) -> int:
    """Return the bytes that a :class:`Ridge` needs: its squares, then Q, its safety copy and W."""
    return 8 * size * (backend.squares * size + 3 * classes)


class Ridge:
    """The state (U, Q) of one stream, in float64: one d x d matrix, and nothing about any single row.

    Attributes:
        square: U (d x d); during an update possibly G + gamma I.
        targets: Q (d x classes).
        carried: W, if updates have carried it along; part of the state, as it differs from a solve by rounding.
        solved: W, if it has been solved for since the last change.
        empty: whether nothing has been learned yet.

    >>> ridge = Ridge(2, gamma=4.0)
    >>> ridge.grow(1)
    >>> ridge.update([(torch.tensor([[0.0, 1.0]]).double(), torch.tensor([[3.0]]).double())], rows=1)
    >>> ridge.weights().T.round(decimals=6).tolist()
    [[0.0, 0.6]]
    """

    def __init__(self, size: int, gamma: float, backend: Backend | None = None) -> None:
        self.size, self.gamma = size, gamma
        self.backend = backend or Lapack()
        require(bytes_needed(size, 0, self.backend), self.backend.device, f"ridge regression on {size} columns")
        self.square = self.backend.square(size)
        self.square.diagonal().fill_(math.sqrt(gamma))
        self.targets = self.square[:, :0]
        self.carried: Tensor | None = None
        self.solved: Tensor | None = None
        self.empty = True

    @property
    def classes(self) -> int:
        """Number of columns of Q and W."""
        return self.targets.shape[1]

    def update(self, blocks: Blocks, rows: int, columns: Tensor | None = None, route: Route | None = None) -> None:
        """Learn the rows of one phase, eqs. (11)-(12).

        Args:
            blocks: pairs of X, which may be destroyed, and Y.
            rows: total number of rows in the blocks; decides the route.
            columns: the columns of Q to which the columns of Y belong; all by default.
            route: ``"cholesky"`` adds the rows to G, n d^2 flops, and factors once, d^3/3 or twice that; ``"qr"``
                folds them into U by orthogonal transformations, 2 n d^2 flops. The cheaper one by default.

        With fewer rows than classes W is updated, eq. (11): a solve for n right-hand sides, not for all classes.
        """
        before = self.weights() if 0 < rows < self.classes and not self.empty else None  # W^(k-1)
        self.carried = self.solved = None
        seen: list[tuple[Tensor, Tensor]] = []
        noted = blocks if before is None else _noted(blocks, seen)
        if (route or self._cheaper_route(rows)) == "cholesky":
            with self.as_gram() as gram:
                for x, y in noted:
                    self.add_targets(x, y, columns)
                    self.backend.add_rows_to_gram_(gram, x)
        else:
            for x, y in noted:
                self.add_targets(x, y, columns)  # before x is destroyed
                self.backend.add_rows_to_factor_(self.square, x)
            if not torch.isfinite(self.square.diagonal()).all():
                raise InputError("the expanded rows are too large for float64: standardise the features")
            self._check_condition()
        self.empty = False
        if before is not None:
            self.carried = self._corrected(before, seen, columns)

    def subtract(self, blocks: Blocks, columns: Tensor | None = None) -> None:
        """Unlearn rows, as if they had never been seen: the inverse of :meth:`update`.

        Raises:
            InputError: the rows were never learned; or they are so large that float64 has lost the digits of the rows
                that remain.
        """
        self.carried = self.solved = None
        with self._as_smaller_gram("these rows cannot be forgotten: they were never learned") as gram:
            for x, y in blocks:
                self.add_targets(x, -y, columns)
                self.backend.add_rows_to_gram_(gram, x, sign=-1.0)

    def merge(self, other: Ridge, columns: Tensor) -> None:
        """Add all that ``other`` has learned; its column j is our column ``columns[j]``, and its gamma is not added."""
        self.carried = self.solved = None
        with self.as_gram() as gram:
            self.backend.add_factor_to_gram_(gram, other.square.to(gram.device))
            gram.diagonal().sub_(other.gamma)
        self.targets.index_add_(1, columns, other.targets.to(gram.device))
        self.empty = False

    def unmerge(self, other: Ridge, columns: Tensor) -> None:
        """Subtract all that ``other`` has learned: the inverse of :meth:`merge`, d^3 flops."""
        self.carried = self.solved = None
        with self._as_smaller_gram("the other model cannot be subtracted: its rows were never learned here") as gram:
            for start in range(0, self.size, _BLOCK):
                rows = other.square[start : start + _BLOCK].triu(start)  # (below, LAPACK leaves arbitrary values)
                self.backend.add_rows_to_gram_(gram, rows.to(gram.device), sign=-1.0)
            gram.diagonal().add_(other.gamma)
        self.targets.index_add_(1, columns, other.targets.to(gram.device), alpha=-1.0)

    def solve(self, b: Tensor) -> Tensor:
        """Return (G + gamma I)^-1 B, for B (d x m): 2 d^2 m flops."""
        return self.backend.solve(self.square, b) if b.shape[1] else b

    def weights(self) -> Tensor:
        """Return W (d x classes), eq. (9), cached until the next change."""
        if self.carried is not None:
            return self.carried
        if self.solved is None:
            self.solved = self.solve(self.targets)
        return self.solved

    def leave_one_out(self, x: Tensor, y: Tensor, removed: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return the outputs for learned rows, as fitted and as if that row had not been learned; (G + gamma I)^-1 X^T.

        With the output f = x W and the leverage h = x (G + gamma I)^-1 x^T of a row, removing weight s of a row learned
        with target y leaves (f - s h y) / (1 - s h), exactly.

        Args:
            x: learned rows (n x d).
            y: their targets (n x classes).
            removed: weight to remove (n,), 1 for a row that was learned once.
        """
        s = self.solve(x.T)  # (G + gamma I)^-1 X^T
        fitted = self.backend.product(s.T, self.targets)  # X W
        taken = (removed * (x * s.T).sum(1))[:, None]
        return fitted, (fitted - taken * y) / (1.0 - taken), s

    def condition(self) -> float:
        """Return an estimate of the condition number of G + gamma I; weights are accurate to about 1e-16 times that."""
        return self.backend.condition(self.square)

    def grow(self, columns: int) -> None:
        """Append zero columns for new classes: W' = [W 0] of Theorem 1."""
        new = torch.zeros(columns, self.size, dtype=torch.float64, device=self.backend.device)
        self.targets = torch.cat([self.targets.T, new]).T  # columns stay contiguous
        self.carried = None if self.carried is None else torch.cat([self.carried.T, new]).T
        self.solved = None

    def select(self, columns: Tensor) -> None:
        """Drop all other columns."""
        self.targets = self.targets.T[columns].T
        self.carried = self.solved = None

    def add_targets(self, x: Tensor, y: Tensor, columns: Tensor | None) -> None:
        """Q <- Q + X^T Y only: the caller adds X to the square."""
        product = self.backend.product(x.T, y)
        if columns is None:
            self.targets.add_(product)
        else:
            self.targets.index_add_(1, columns, product)

    @contextmanager
    def as_gram(self) -> Iterator[Tensor]:
        """Yield G + gamma I in place of U; factor it at the end, or raise :class:`IndefiniteError`."""
        if self.empty:
            self.square.diagonal().fill_(self.gamma)
        else:
            self.backend.unfactor_(self.square)
        yield self.square
        try:
            self.backend.factor_(self.square)
        except LinAlgError as error:
            raise IndefiniteError from error
        self._check_condition()

    @contextmanager
    def _as_smaller_gram(self, failure: str) -> Iterator[Tensor]:
        """Yield G + gamma I to subtract rows from, and factor it; raise if too few digits remain.

        If G is indefinite although :func:`digits_lost` does not explain it, raise with ``failure``.
        """
        try:
            with self.as_gram() as gram:
                largest = gram.diagonal().max().item()
                yield gram
                after = gram.diagonal().max().item()
        except IndefiniteError as error:
            if not digits_lost(largest, after, self.gamma):
                raise InputError(failure) from error
            lost = True
        else:
            lost = digits_lost(largest, after, self.square.diagonal().abs().min().item() ** 2)
        if lost:
            raise InputError(
                f"the rows to forget are about {math.sqrt(largest / after):.0e} times as large as those that would "
                "remain, whose digits float64 has lost beside them: the result would be wrong. Learn again without them"
            )

    def _check_condition(self) -> None:
        """Warn if G + gamma I is ill-conditioned, by an estimate from the diagonal of U alone."""
        pivots = self.square.diagonal().abs()
        condition = self.size * (pivots.max() / pivots.min()).item() ** 2
        if condition > _CONDITION:
            warnings.warn(
                f"G + gamma I has a condition number of about {condition:.0e} with gamma={self.gamma:g}, so few "
                "digits of the weights are right: raise gamma, or standardise the features",
                PrecisionWarning,
                stacklevel=2,
            )

    def _cheaper_route(self, rows: int) -> Route:
        """Return the route with fewer flops, in units of d^2."""
        squarings = 1 if self.empty else 2  # factor, and unfactor before it unless empty
        by_cholesky = rows + squarings * self.size / 3
        return "cholesky" if by_cholesky < _QR_SLOWNESS * 2 * rows else "qr"

    def _corrected(self, weights: Tensor, rows: list[tuple[Tensor, Tensor]], columns: Tensor | None) -> Tensor:
        """Return W^(k) from W^(k-1) and the rows of phase k, which the square already contains: eq. (11)."""
        x, y = torch.cat([x for x, _ in rows]), torch.cat([y for _, y in rows])
        error = -self.backend.product(x, weights)
        if columns is None:
            error += y
        else:
            error.index_add_(1, columns, y)
        return weights + self.backend.product(self.solve(x.T), error)


def digits_lost(largest: float, after: float, least: float) -> bool:
    """Return whether subtracting large rows from G + gamma I has left weights with too few right digits.

    Entries are wrong by about float64's rounding of the largest they have ever been, which counts next to the smallest
    squared pivot that remains.

    Args:
        largest: diagonal entry before the subtraction.
        after: largest diagonal entry after it.
        least: smallest squared pivot after it.
    """
    rounding = torch.finfo(torch.float64).eps * largest
    return 0.0 < 100.0 * after < largest and rounding > _LOST * least


def _noted(blocks: Blocks, seen: list[tuple[Tensor, Tensor]]) -> Blocks:
    """Yield the blocks, and append copies of them to ``seen``."""
    for x, y in blocks:
        seen.append((x.clone(), y))
        yield x, y
