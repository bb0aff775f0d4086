"""Add one row to an upper triangular factor on the CPU."""

from __future__ import annotations

import torch
from torch import Tensor

_COLUMNS = 16  # columns handled at once: they stay in cache


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
