"""The learned classifier as a ``torch.nn.Module``: features to logits, eq. (19); and the best classes of many rows.

The best classes are those of float64 in half the time: two float32 scores of a row count as different only if float32's
rounding error, which depends on the size of that row, cannot have changed their order.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from copy import deepcopy

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from dsal.analytic.activations import Activation, apply, slope_of
from dsal.analytic.combine import combined
from dsal.analytic.expansion import Expansion, Product
from dsal.errors import InputError
from dsal.linalg.backend import Array, Backend

Apply = Callable[[Activation, Tensor], Tensor]
_TILE_BYTES = 2**23  # of expanded rows scored at once: they stay in cache until both streams have used them
_BLOCK_NUMBERS = 2**22  # of expanded rows while logits are computed
_FEW = 32  # rows up to which a copy of the weights in float32 does not pay
_UNIT = 2.0**-24  # unit roundoff of float32
_LEAST, _MOST = 1e-15, 1e15  # sizes within which neither the numbers nor their squares leave the range of float32


def _call(activation: Activation, z: Tensor) -> Tensor:
    return activation(z)


class AnalyticHead(nn.Module):
    """logits = sigma_M(B(F)) W_M + C sigma_C(B(F)) W_C; it can be put behind a backbone, traced and exported.

    Args:
        expansion: B.
        main_activation: sigma_M.
        main: W_M (d_B x classes).
        activation: sigma_C.
        comp: W_C (d_B x classes), or None for the main stream alone.
        compensation: C.
        classes: the label of each column of the logits.
    """

    main: Tensor
    comp: Tensor | None

    def __init__(
        self,
        expansion: Expansion,
        *,
        main_activation: Activation,
        main: Tensor,
        activation: Activation,
        comp: Tensor | None,
        compensation: float,
        classes: list[object],
    ) -> None:
        super().__init__()
        self.expansion = expansion
        self.main_activation, self.activation = main_activation, activation
        self.register_buffer("main", main)
        self.register_buffer("comp", comp)
        self.compensation, self.classes = compensation, classes

    def forward(self, features: Tensor, product: Product = torch.matmul, apply: Apply = _call) -> Tensor:
        """Return the logits (n x classes) of features (n x d_in).

        Args:
            features: of any floating-point type.
            product: the matrix product to use.
            apply: how to apply an activation; a plain call by default; ``activations.apply`` also checks it.
        """
        return self.scores(self.expansion(features.to(self.main.dtype), product), product, apply)

    def scores(self, z: Tensor, product: Product = torch.matmul, apply: Apply = _call) -> Tensor:
        """Return the logits (n x classes) of expanded features z (n x d_B); arguments as in :meth:`forward`."""
        main = product(apply(self.main_activation, z), self.main)
        if self.comp is None or not self.compensation:
            return main
        return combined(main, product(apply(self.activation, z), self.comp), self.compensation)

    def copied(self, dtype: torch.dtype) -> AnalyticHead:
        """Return an independent copy in another precision.

        Its numbers are converted first: deepcopy would copy them, and hold Python's lock meanwhile.
        """
        converted = {id(part): part.to(dtype, copy=True) for part in self.buffers() if part.is_floating_point()}
        return deepcopy(self, converted).to(dtype)


def logits(head: AnalyticHead, features: Array, backend: Backend, dtype: torch.dtype = torch.float64) -> Array:
    """Return the logits (n x classes) of ``features`` (n x d_in), computed in float64 or float32."""
    _check_width(head, features)
    size, classes = head.main.shape
    if dtype != head.main.dtype:
        head = head.copied(dtype)
    answer, step = torch.empty(len(features), classes, dtype=dtype), max(_BLOCK_NUMBERS // size, 1)
    for start in range(0, len(features), step):
        some = slice(start, start + step)
        rows = torch.tensor(features[some], dtype=dtype, device=backend.device)
        with torch.no_grad():
            answer[some] = head(rows, backend.product, apply)
    return answer.numpy()


def best_columns(head: AnalyticHead, features: Array, backend: Backend) -> NDArray[np.int64]:
    """Return the column of the largest float64 logit for every row of ``features`` (n x d_in): (n,)."""
    _check_width(head, features)
    size, classes = head.main.shape
    if classes == 1:
        return np.zeros(len(features), dtype=np.int64)
    if len(features) <= _FEW or not (margins := Margins(light := head.copied(torch.float32))).usable:
        return _best(logits(head, features, backend))
    best, sure = np.zeros(len(features), dtype=np.int64), np.zeros(len(features), dtype=bool)
    step = max(_TILE_BYTES // (4 * size), 64)
    for start in range(0, len(features), step):
        some = slice(start, start + step)
        # For small tiles torch's own product is best: threads of another BLAS, still spinning, would slow it down.
        with torch.no_grad():
            rows = torch.tensor(features[some], dtype=torch.float32, device=backend.device)
            z = light.expansion(rows)
            two = light.scores(z).topk(2, dim=1)
            best[some] = two.indices[:, 0].cpu().numpy()
            sure[some] = (two.values[:, 0] - two.values[:, 1] > margins.of(rows, z)).cpu().numpy()
    again = np.flatnonzero(~sure)
    best[again] = _best(logits(head, features[again], backend))
    return best


class Margins:
    """How far apart two float32 scores of a row must be for float64 to agree on which is larger.

    With u the unit roundoff of float32, z = B(x) and dz its error, the scores of a stream are wrong by at most about

        u |w| (sqrt(d_B) |sigma(z)| + L |dz| / u),    |sigma(z)| <= |sigma(0)| + L |z|,

    with L the largest slope of sigma and |w| the largest 2-norm of a column of W: the probabilistic bound of a dot
    product (Higham and Mary, 2019), and Cauchy-Schwarz. Every term belongs to the row itself, so neither the other
    rows of a batch nor their sizes matter. On CIFAR features the bound is some 200 times the largest true error.
    """

    def __init__(self, head: AnalyticHead) -> None:
        self.rounding, size = head.expansion.rounding(), head.expansion.projection.norm().item()
        self.usable = self.rounding is not None and size < _MOST and torch.get_float32_matmul_precision() == "highest"
        self.constant = self.slope = 0.0  # u |w| sqrt(d_B) |sigma(0)| and u |w| L, summed over the streams
        streams = [(head.main_activation, head.main, 1.0)]
        if head.comp is not None and head.compensation:
            streams.append((head.activation, head.comp, abs(head.compensation)))
        for activation, weights, factor in streams:
            size, steepest = factor * weights.norm(dim=0).max().item(), slope_of(activation)
            if steepest is None or not _LEAST < size < _MOST:
                self.usable = False
                return
            self.constant += _UNIT * size * len(weights) * activation(weights.new_zeros(1)).abs().item()
            self.slope += _UNIT * size * steepest

    def of(self, rows: Tensor, z: Tensor) -> Tensor:
        """Return the margin (n,) of rows (n x d_in) and z = B(rows) (n x d_B), both float32.

        It is infinite where float32 may over- or underflow.
        """
        sizes = z.norm(dim=1)
        error = self.rounding(rows, sizes) if self.rounding else math.inf
        margins = 2.0 * (self.constant + self.slope * (math.sqrt(z.shape[1]) * sizes + error))
        return torch.where((sizes > _LEAST) & (sizes < _MOST), margins, math.inf)


def _best(scores: Array) -> NDArray[np.int64]:
    """Return the column of the largest of each row's scores (n x classes), the first of equal ones: (n,)."""
    return np.asarray(scores.argmax(1), dtype=np.int64)


def _check_width(head: AnalyticHead, features: Array) -> None:
    width = len(head.expansion.projection)
    if features.ndim != 2 or features.shape[1] != width:
        raise InputError(f"expected features of shape (n, {width}), got {features.shape}")
