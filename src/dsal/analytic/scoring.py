"""Logits of many rows, and their best classes in half the time: float32, or float64 where the two best are close.

The best classes are those of float64. The error of float32 is measured on some of the rows, so nothing is assumed
about the expansion or the weights.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dsal.analytic.activations import apply
from dsal.analytic.expansion import Product
from dsal.analytic.head import AnalyticHead
from dsal.errors import InputError
from dsal.linalg.backend import Array, Backend

_TILE_BYTES = 2**23  # of expanded rows scored at once: they stay in cache until both streams have used them
_BLOCK_NUMBERS = 2**22  # of expanded rows while logits are computed
_PROBES = 32  # rows scored first in both precisions
_SAFETY = 32.0  # scores closer than this multiple of the largest error among the probes are computed again


def logits(head: AnalyticHead, features: Array, backend: Backend, dtype: torch.dtype = torch.float64) -> Array:
    """Return the logits (n x classes) of ``features`` (n x d_in), computed in float64 or float32."""
    _check_width(head, features)
    size, classes = head.main.shape
    if dtype != head.main.dtype:
        head = head.copied(dtype)
    answer, step = torch.empty(len(features), classes, dtype=dtype), max(_BLOCK_NUMBERS // size, 1)
    for start in range(0, len(features), step):
        some = slice(start, start + step)
        answer[some] = _scores(head, features[some], backend.device, backend.product)
    return answer.numpy()


def best_columns(head: AnalyticHead, features: Array, backend: Backend) -> NDArray[np.int64]:
    """Return the column of the largest logit for every row of ``features`` (n x d_in): (n,)."""
    _check_width(head, features)
    best = np.zeros(len(features), dtype=np.int64)
    size, classes = head.main.shape
    if not len(features) or classes == 1:
        return best
    light = head.copied(torch.float32)
    probes = features[: len(features) : max(len(features) // _PROBES, 1)]
    exact = _scores(head, probes, backend.device, backend.product)
    error = (_scores(light, probes, backend.device) - exact).abs().max().item()
    close = np.zeros(len(features), dtype=bool)
    step = max(_TILE_BYTES // (4 * size), 64)
    for start in range(0, len(features), step):
        two = _scores(light, features[start : start + step], backend.device).topk(2, dim=1)
        best[start : start + step] = two.indices[:, 0].cpu().numpy()
        close[start : start + step] = (two.values[:, 0] - two.values[:, 1] <= _SAFETY * error).cpu().numpy()
    again = np.flatnonzero(close)
    for some in np.split(again, range(step, len(again), step)):
        best[some] = _scores(head, features[some], backend.device, backend.product).argmax(1).cpu().numpy()
    return best


def _check_width(head: AnalyticHead, features: Array) -> None:
    width = len(head.expansion.projection)
    if features.ndim != 2 or features.shape[1] != width:
        raise InputError(f"expected features of shape (n, {width}), got {features.shape}")


def _scores(head: AnalyticHead, features: Array, device: torch.device, product: Product = torch.matmul) -> Tensor:
    """Return scores (n x classes) in the precision of the head.

    For small tiles torch's own product is best: threads of another BLAS, still spinning, would slow down torch's.
    """
    with torch.no_grad():
        rows = torch.tensor(features, dtype=head.main.dtype, device=device)
        scores: Tensor = head(rows, product, apply)
    return scores
