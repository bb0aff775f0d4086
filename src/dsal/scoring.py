"""The best class of many rows in half the time: scores in float32; where the two best are close, again in float64.

The answers are those of float64. How far float32 is off is measured on some of the rows, so nothing is assumed about
the expansion or the weights.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dsal.activations import Activation, apply
from dsal.blas import Array, Backend
from dsal.expansion import Expansion, Product

_TILE_BYTES = 2**23  # of expanded rows scored at once: they stay in cache until both streams are done with them
_PROBES = 32  # rows scored in both precisions to begin with
_SAFETY = 32.0  # scores closer than so many times the largest error seen among the probes are looked at again


class Term(NamedTuple):
    """sigma(B(F)) W, one stream's share of the scores."""

    activation: Activation
    weights: Tensor  # (d_B x classes) float64, the stream's factor C included


def best_columns(expansion: Expansion, terms: Sequence[Term], features: Array, backend: Backend) -> NDArray[np.int64]:
    """The column of the largest score for every row of ``features`` (n x d_in): (n,)."""
    best = np.zeros(len(features), dtype=np.int64)
    if not len(features) or terms[0].weights.shape[1] == 1:
        return best
    light = deepcopy(expansion).float()
    light_terms = [Term(term.activation, term.weights.float()) for term in terms]
    probes = features[: len(features) : max(len(features) // _PROBES, 1)]
    exact = _scores(expansion, terms, probes, backend.device, backend.product)
    error = (_scores(light, light_terms, probes, backend.device) - exact).abs().max().item()
    close = np.zeros(len(features), dtype=bool)
    step = max(_TILE_BYTES // (4 * terms[0].weights.shape[0]), 64)
    for start in range(0, len(features), step):
        two = _scores(light, light_terms, features[start : start + step], backend.device).topk(2, dim=1)
        best[start : start + step] = two.indices[:, 0].cpu().numpy()
        close[start : start + step] = (two.values[:, 0] - two.values[:, 1] <= _SAFETY * error).cpu().numpy()
    again = np.flatnonzero(close)
    for some in np.split(again, range(step, len(again), step)):
        scores = _scores(expansion, terms, features[some], backend.device, backend.product)
        best[some] = scores.argmax(1).cpu().numpy()
    return best


def _scores(
    expansion: Expansion, terms: Sequence[Term], features: Array, device: torch.device, product: Product = torch.matmul
) -> Tensor:
    """Scores (n x classes) in the precision of the weights.

    In small tiles torch's own product is best: threads of another BLAS, still awake, would be in the way of torch's.
    """
    rows = torch.tensor(features, dtype=terms[0].weights.dtype, device=device)
    z = expansion(rows, product)
    scores = product(apply(terms[0].activation, z), terms[0].weights)
    for term in terms[1:]:
        scores += product(apply(term.activation, z), term.weights)
    return scores
