"""gamma and C without test data and without stored samples: both from leave-one-out errors in closed form.

gamma: with G = V diag(l) V^T, one eigen-decomposition gives the ridge weights of every gamma,

    W(gamma) = V diag(1 / (l + gamma)) V^T Q,    h_i(gamma) = sum_j z_ij^2 / (l_j + gamma),    Z = X V,

and with the leverage h_i the output for row i of a model that has not learned row i, (f_i - h_i y_i) / (1 - h_i).
The gamma of the least mean squared error of these outputs is chosen; that of the compensation stream in the same way,
with the residue of the main stream in place of the targets.

C: after a phase, let e be the leave-one-out error of the main stream on a row, and r the leave-one-out output of the
compensation stream. The C that makes the error e - C r least in the sum of squares is <e, r> / <r, r>. Both sums add up
over rows and phases, so two numbers are all that is kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dsal.activations import Activation, apply
from dsal.blas import Backend
from dsal.errors import InputError
from dsal.expansion import Expansion
from dsal.memory import require
from dsal.scoring import Term
from dsal.streams import Block, Reader

GAMMAS = tuple(float(f"{10.0**exponent:.3g}") for exponent in np.arange(-3, 3.5, 0.5))
"""Half decades from 0.001 to 1000."""
DEFAULT_RATIO = 0.6
"""C where nothing has been learned that could speak for another: the paper's, on CIFAR-100."""

Array = NDArray[np.float64]


class RidgePath:
    """The ridge regressions of all gammas, from one eigen-decomposition.

    Args:
        gram: G (d x d), upper triangle.
        targets: Q (d x classes).
        backend: where to compute.

    >>> from dsal.blas import Lapack
    >>> path = RidgePath(torch.tensor([[4.0]]).double(), torch.tensor([[8.0]]).double(), Lapack())
    >>> [path.weights(gamma).item() for gamma in (4.0, 12.0)]
    [1.0, 0.5]
    """

    def __init__(self, gram: Tensor, targets: Tensor, backend: Backend) -> None:
        self.backend = backend
        self._values, self._vectors = backend.spectrum(gram)
        self._targets = backend.product(self._vectors.T, targets)  # V^T Q

    def weights(self, gamma: float) -> Tensor:
        """W(gamma) (d x classes)."""
        return self.backend.product(self._vectors, self._targets / self._shifted(gamma)[:, None])

    def errors(self, x: Tensor, y: Tensor, share: Tensor, gammas: Sequence[float]) -> list[float]:
        """Mean squared leave-one-out error over learned rows, for each gamma.

        Args:
            x: learned rows (n x d).
            y: their targets (n x classes).
            share: weight to leave out (n,), 1 for a row that was learned once.
            gammas: penalties above 0.
        """
        z = self.backend.product(x, self._vectors)
        found = []
        for gamma in gammas:
            scaled = z / self._shifted(gamma)
            taken = (share * (scaled * z).sum(1))[:, None]
            left_out = (self.backend.product(scaled, self._targets) - taken * y) / (1.0 - taken)
            found.append(float(((y - left_out) ** 2).mean()))
        return found

    def _shifted(self, gamma: float) -> Tensor:
        if gamma <= 0:
            raise InputError(f"gamma must be above 0, got {gamma}")
        return self._values.clamp_min(0.0) + gamma  # rounding may leave an eigenvalue just below 0


@dataclass(frozen=True)
class GammaChoice:
    """The errors of all gammas that were tried."""

    gammas: tuple[float, ...]
    errors: tuple[float, ...]

    @property
    def gamma(self) -> float:
        """The one of the least leave-one-out error; of equals the largest, which conditions best."""
        usable = [(error, -gamma) for error, gamma in zip(self.errors, self.gammas, strict=True) if np.isfinite(error)]
        if not usable:
            raise InputError("no gamma gives a finite leave-one-out error: give a number for gamma")
        return -min(usable)[1]


def choose_gamma(
    read: Reader,
    sample: Block,
    expansion: Expansion,
    activation: Activation,
    classes: int,
    backend: Backend,
    gammas: Sequence[float] = GAMMAS,
    after: Term | None = None,
) -> tuple[GammaChoice, Term]:
    """Choose gamma for a stream sigma(B(F)) that learns the rows of one phase.

    Costs n d^2 flops for the rows and 9 d^3 for the decomposition, and five d x d matrices while it lasts.

    Args:
        read: gives the blocks of the phase.
        sample: some of its rows, which are left out in turn.
        expansion: B.
        activation: sigma.
        classes: number of columns.
        backend: where to compute.
        gammas: what to try.
        after: a stream that has learned the phase before; this one learns its residue.

    Returns:
        The choice, and the stream as it is learned with it.
    """
    size = expansion.projection.shape[1]
    require(5 * 8 * size**2, backend.device, f"choosing gamma with expansion_size={size}")
    which = torch.arange(classes, device=backend.device)

    def rows_of(block: Block) -> tuple[Tensor, Tensor]:
        z = expansion(block.features, backend.product)
        y = (block.columns[:, None] == which).double()
        if after is not None:
            y -= backend.product(apply(after.activation, z), after.weights)  # (13)
        return apply(activation, z), y

    gram, targets = backend.square(size), torch.zeros(size, classes, dtype=torch.float64, device=backend.device)
    for block in read():
        x, y = rows_of(block)
        if block.weight is not None:
            root = block.weight.sqrt()[:, None]
            x, y = x * root, y * root
        targets += backend.product(x.T, y)
        backend.add_rows_to_gram_(gram, x)
    path = RidgePath(gram, targets, backend)
    x, y = rows_of(sample)
    share = torch.ones_like(y[:, 0]) if sample.weight is None else sample.weight.clamp_max(1.0)
    choice = GammaChoice(tuple(gammas), tuple(path.errors(x, y, share, gammas)))
    return choice, Term(activation, path.weights(choice.gamma))


@dataclass(frozen=True)
class RatioFit:
    """What C comes from, summed over phases: <e, r> and <r, r>.

    >>> fit = RatioFit().plus(np.array([[1.0, 0.0]]), np.array([[2.0, 0.0]]), np.ones(1), total=1.0)
    >>> fit.ratio, RatioFit().ratio
    (0.5, 0.6)
    """

    explained: float = 0.0
    energy: float = 0.0

    def plus(self, errors: Array, corrections: Array, weight: Array, total: float) -> RatioFit:
        """Add rows that stand for a phase.

        Args:
            errors: leave-one-out errors of the main stream (n x classes).
            corrections: leave-one-out outputs of the compensation stream (n x classes).
            weight: weight of each row (n,).
            total: weight of the phase that the rows stand for together.
        """
        usable = np.isfinite(errors).all(1) & np.isfinite(corrections).all(1)
        if not usable.any():
            return self
        errors, corrections, weight = errors[usable], corrections[usable], weight[usable]
        scale = float(total / weight.sum())
        explained = scale * float(weight @ (errors * corrections).sum(1))
        energy = scale * float(weight @ (corrections**2).sum(1))
        return RatioFit(self.explained + explained, self.energy + energy)

    def merged(self, other: RatioFit) -> RatioFit:
        """The fit to both models' rows together."""
        return RatioFit(self.explained + other.explained, self.energy + other.energy)

    @property
    def ratio(self) -> float:
        """C, 0 or more."""
        return max(self.explained / self.energy, 0.0) if self.energy > 0 else DEFAULT_RATIO
