"""Upper triangular factors on the CPU: their Gram matrix in place of them, and one row more."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Array = NDArray[Any]
_PANEL = 256  # columns handled at once where a triangle is walked panel by panel
_COLUMNS = 16  # columns handled at once where one row joins a factor: they stay in cache


def gram_panels(u: Array) -> Iterator[tuple[int, int, Array, Array]]:
    """Yield U^T U panel by panel: (start, stop, rows start:stop of the diagonal block, of all columns to its right).

    Panels come from the bottom up, and each needs only rows of U above ``stop``: a caller may write a panel over the
    rows it stands for.
    """
    for stop in range(len(u), 0, -_PANEL):
        start = max(stop - _PANEL, 0)
        left = np.triu(u[:stop, start:stop], -start)
        yield start, stop, left.T @ left, left.T @ u[:stop, stop:]


def add_row_(factor: Tensor, row: Tensor) -> None:
    """U <- the triangular factor of [U; x], in closed form, column by column as they lie in memory.

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
        torch.sub(row[start:stop, None], left, out=left)  # the sum from the next entry down: all of it is x_j
        block[:, :start].mul_(scale[:start]).addcmul_(left[:, :start], gain[:start])
        corner = block[:, start:]
        changed = corner * scale[start:stop] + left[:, start:] * gain[start:stop]
        corner.copy_(torch.where(torch.ones_like(corner, dtype=torch.bool).tril(), changed, corner))


def upper(n: int) -> Array:
    """Where an n x n matrix is on or above its diagonal."""
    return ~np.tri(n, k=-1, dtype=bool)
