"""The best class of many rows in half the time: scores in float32; where the two best are close, again in float64.

The answers are those of float64. How far float32 is off is measured on some of the rows, so nothing is assumed about
the expansion or the weights.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dsal.activations import apply
from dsal.blas import Array, Backend
from dsal.expansion import Product
from dsal.head import AnalyticHead

_TILE_BYTES = 2**23  # of expanded rows scored at once: they stay in cache until both streams are done with them
_PROBES = 32  # rows scored in both precisions to begin with
_SAFETY = 32.0  # scores closer than so many times the largest error seen among the probes are looked at again


def best_columns(head: AnalyticHead, features: Array, backend: Backend) -> NDArray[np.int64]:
    """The column of the largest score for every row of ``features`` (n x d_in): (n,)."""
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


def _scores(head: AnalyticHead, features: Array, device: torch.device, product: Product = torch.matmul) -> Tensor:
    """Scores (n x classes) in the precision of the head.

    In small tiles torch's own product is best: threads of another BLAS, still awake, would be in the way of torch's.
    """
    with torch.no_grad():
        rows = torch.tensor(features, dtype=head.main.dtype, device=device)
        scores: Tensor = head(rows, product, apply)
    return scores
