"""Linear algebra in tiles on several threads, with the same results for any number of threads.

Squares are column-major; of a square only the triangle on and above the diagonal is read or written. The shapes of
tiles depend only on the shapes of the matrices.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from threading import Event

import numpy as np
import torch
from torch import Tensor

from dsal.linalg import lapack
from dsal.linalg.lapack import Array
from dsal.linalg.threads import workers

_TILE = 256  # columns, and rows, of a tile: large enough for BLAS, small enough for two threads at d_B = 1,024
_PANEL, _BLOCK = 128, 32  # columns folded into a factor at once, and per block of reflectors: measured
_SOLVED = 64  # right-hand sides solved at once, at most
_COLUMNS = 16  # columns handled at once when a single row is added: they stay in cache


def spans(start: int, stop: int, step: int = _TILE) -> list[slice]:
    """Cut a range into slices of ``step``; the last may be smaller."""
    return [slice(first, min(first + step, stop)) for first in range(start, stop, step)]


def product(a: Array, b: Array) -> Array:
    """Return A B, column-major, for A (n x k) and B (k x m) of any memory layout."""
    left, way_a = _operand(a)
    right, way_b = _operand(b)
    c = np.empty((len(a), b.shape[1]), dtype=a.dtype, order="F")

    def tile(rows: slice, columns: slice) -> None:
        of_a = left[:, rows] if way_a == b"T" else left[rows]
        of_b = right[columns] if way_b == b"T" else right[:, columns]
        lapack.product_(c[rows, columns], of_a, of_b, ways=way_a + way_b)

    if not a.shape[1]:
        c[:] = 0.0
    elif c.size:
        with workers() as pool:
            columns_of_c, rows_of_c = spans(0, c.shape[1]), spans(0, len(c))
            pool.run([partial(tile, rows, columns) for columns in columns_of_c for rows in rows_of_c])
    return c


def add_rows_(g: Array, x: Array, sign: float) -> None:
    """G <- G + sign X^T X, for X (n x d)."""
    operand, way = _operand(x)

    def rows_of(columns: slice) -> Array:
        return operand[columns] if way == b"T" else operand[:, columns]

    def tile(rows: slice, columns: slice) -> None:
        if rows == columns:
            lapack.symmetric_product_(g[rows, columns], rows_of(rows), sign, way=_flipped(way))
        else:
            lapack.product_(g[rows, columns], rows_of(rows), rows_of(columns), sign, 1.0, _flipped(way) + way)

    _each_tile(len(g), tile)


def add_factor_(g: Array, u: Array) -> None:
    """G <- G + U^T U."""

    def tile(rows: slice, columns: slice) -> None:
        left = np.asfortranarray(np.triu(u[: rows.stop, rows], -rows.start))
        if rows == columns:
            lapack.symmetric_product_(g[rows, columns], left)
        else:
            lapack.product_(g[rows, columns], left, u[: rows.stop, columns], beta=1.0, ways=b"TN")

    _each_tile(len(g), tile)


def unfactor_(u: Array) -> None:
    """U <- U^T U, from the bottom up: rows of the result need their own rows of U and those above."""

    def tile(rows: slice, columns: slice, corner: Array) -> None:
        block, above = u[rows, columns], slice(rows.start)
        if rows == columns:
            lapack.symmetric_product_(block, corner, beta=0.0)
            lapack.symmetric_product_(block, u[above, rows])
        else:
            lapack.times_factor_(block, corner)
            lapack.product_(block, u[above, rows], u[above, columns], beta=1.0, ways=b"TN")

    with workers() as pool:
        for rows in reversed(spans(0, len(u))):
            corner = np.asfortranarray(np.triu(u[rows, rows]))
            pool.run([partial(tile, rows, columns, corner) for columns in (rows, *spans(rows.stop, len(u)))])


def factor_(g: Array) -> bool:
    """G <- U with U^T U = G, row after row of tiles; return whether G is positive definite."""

    def corner(rows: slice, done: Event) -> None:
        try:
            block = g[rows, rows]
            lapack.symmetric_product_(block, g[: rows.start, rows], -1.0)
            positive.append(lapack.cholesky_(block))
        finally:
            done.set()

    def tile(rows: slice, columns: slice, done: Event) -> None:
        above = slice(rows.start)
        lapack.product_(g[rows, columns], g[above, rows], g[above, columns], -1.0, 1.0, b"TN")
        done.wait()
        lapack.solve_factor_(g[rows, columns], g[rows, rows], b"T")

    positive: list[bool] = []
    with workers() as pool:
        for rows in spans(0, len(g)):
            done = Event()
            tiles = [partial(tile, rows, columns, done) for columns in spans(rows.stop, len(g))]
            pool.run([partial(corner, rows, done), *tiles])
            if not positive[-1]:
                return False
    return True


def fold_in_(u: Array, x: Array) -> None:
    """U <- the triangular factor of [U; X], for X (n x d), column-major, which is destroyed.

    While the reflectors of one panel of columns are applied to the columns on its right, those of the next panel are
    computed.
    """
    block = 16 if len(x) < 64 else _BLOCK
    panels = spans(0, len(u), _PANEL)
    factors = [np.empty((min(block, p.stop - p.start), p.stop - p.start), order="F") for p in panels]

    def reflect(number: int, columns: slice) -> None:
        panel = panels[number]
        lapack.reflect_(u[panel, columns], x[:, columns], x[:, panel], factors[number])

    def advance(number: int) -> None:
        panel = panels[number]
        if number:
            reflect(number - 1, panel)
        lapack.fold_in_(u[panel, panel], x[:, panel], factors[number])

    with workers() as pool:
        advance(0)
        for number in range(len(panels) - 1):
            rest = spans(panels[number + 1].stop, len(u))
            pool.run([partial(advance, number + 1), *(partial(reflect, number, columns) for columns in rest)])


def add_row_(factor: Tensor, row: Tensor) -> None:
    """U <- the triangular factor of [U; x], in closed form, column by column in memory order.

    U^T U + x^T x = U^T (I + p p^T) U with p = U^-T x^T. The factor of I + p p^T has the diagonal sqrt(t_i / t_(i-1))
    and, right of it, p_i p_j / sqrt(t_i t_(i-1)), where t_i = 1 + p_1^2 + ... + p_i^2; times U, that is a sum down each
    column of U.
    """
    from scipy.linalg import blas

    p = torch.from_numpy(blas.dtrsv(factor.numpy(), row.numpy(), trans=1))
    t = 1.0 + p.square().cumsum(0)
    before = torch.cat([t.new_ones(1), t[:-1]])
    scale, gain = (t / before).sqrt(), p / (t * before).sqrt()
    columns = factor.T  # contiguous
    work = torch.empty(_COLUMNS, len(p), dtype=p.dtype)
    for start in range(0, len(p), _COLUMNS):
        stop = min(start + _COLUMNS, len(p))
        block, left = columns[start:stop, :stop], work[: stop - start, :stop]
        torch.mul(block, p[:stop], out=left)
        torch.cumsum(left, 1, out=left)
        torch.sub(row[start:stop, None], left, out=left)  # the sum from the next entry down; the full sum is x_j
        block[:, :start].mul_(scale[:start]).addcmul_(left[:, :start], gain[:start])
        corner = block[:, start:]
        changed = corner * scale[start:stop] + left[:, start:] * gain[start:stop]
        corner.copy_(torch.where(torch.ones_like(corner, dtype=torch.bool).tril(), changed, corner))


def solve_(u: Array, b: Array) -> None:
    """B <- (U^T U)^-1 B, for B (d x m), column-major."""

    def tile(columns: slice) -> None:
        lapack.solve_factor_(b[:, columns], u, b"T")
        lapack.solve_factor_(b[:, columns], u, b"N")

    count = b.shape[1]
    tiles = max(-(-count // _SOLVED), 1)
    with workers() as pool:
        pool.run([partial(tile, columns) for columns in spans(0, count, max(-(-count // tiles), 1))])


def _each_tile(d: int, tile: Callable[[slice, slice], None]) -> None:
    """Call ``tile(rows, columns)`` for each tile of a d x d triangle."""
    cuts = spans(0, d, _TILE * (1 + (d >= 4096) + (d >= 8192)))  # measured: larger ones are faster
    with workers() as pool:
        pool.run([partial(tile, rows, columns) for columns in cuts for rows in cuts if rows.start <= columns.start])


def _operand(matrix: Array) -> tuple[Array, bytes]:
    """Return a matrix for Fortran: column-major memory, and whether that memory holds its transpose (T) or not (N)."""
    if matrix.flags.f_contiguous:
        return matrix, b"N"
    if matrix.flags.c_contiguous:
        return matrix.T, b"T"
    return np.asfortranarray(matrix), b"N"


def _flipped(way: bytes) -> bytes:
    return b"N" if way == b"T" else b"T"
