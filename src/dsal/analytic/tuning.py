"""Choose gamma and C from leave-one-out outputs in closed form, without test data or stored samples.

gamma: with G = V diag(l) V^T, one eigen-decomposition gives the ridge weights of every gamma,

    W(gamma) = V diag(1 / (l + gamma)) V^T Q,    h_i(gamma) = sum_j z_ij^2 / (l_j + gamma),    Z = X V,

and with the leverage h_i the output for row i of a model that has not learned row i, (f_i - h_i y_i) / (1 - h_i).
The gamma with the fewest wrong predictions is the best; the smallest gamma that is statistically as good is chosen.

C: after a phase, let e be the leave-one-out error of the main stream on a row, and r the leave-one-out output of the
compensation stream. The C that minimises the sum of squares of e - C r is <e, r> / <r, r>. Both sums add up over rows
and phases, so only two numbers are kept. The first phase counts only until there is a second one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dsal.analytic.activations import Activation, apply
from dsal.analytic.combine import combined
from dsal.analytic.expansion import Expansion
from dsal.analytic.rows import Block, PhaseRows, Reader
from dsal.analytic.streams import Auto, Compensation, one_hot, residue
from dsal.base.memory import require
from dsal.base.options import COMPENSATION
from dsal.errors import InputError
from dsal.linalg.backend import Backend

GAMMAS = tuple(float(f"{10.0**exponent:.3g}") for exponent in np.arange(-3, 3.5, 0.5))
"""Half decades from 0.001 to 1000."""
GAMMA_ROWS = 1024
"""Rows of the first phase, left out in turn to choose gamma."""
RATIO_ROWS = 256
"""Rows of a phase, left out in turn to choose C."""

_BLOCK_ROWS = 1024

Array = NDArray[np.float64]


class RidgePath:
    """The ridge regressions of all gammas, from one eigen-decomposition.

    Args:
        gram: G (d x d), upper triangle.
        targets: Q (d x classes).
        backend: where to compute.

    >>> from dsal.linalg.backend import Lapack
    >>> path = RidgePath(torch.tensor([[4.0]]).double(), torch.tensor([[8.0]]).double(), Lapack())
    >>> [path.weights(gamma).item() for gamma in (4.0, 12.0)]
    [1.0, 0.5]
    """

    def __init__(self, gram: Tensor, targets: Tensor, backend: Backend) -> None:
        self.backend = backend
        self._values, self._vectors = backend.spectrum(gram)
        self._targets = backend.product(self._vectors.T, targets)  # V^T Q

    def weights(self, gamma: float) -> Tensor:
        """Return W(gamma) (d x classes)."""
        return self.backend.product(self._vectors, self._targets / self._shifted(gamma)[:, None])

    def left_out(self, x: Tensor, y: Tensor, removed: Tensor, gammas: Sequence[float]) -> Iterator[Tensor]:
        """Yield for each gamma the outputs (n x classes) for learned rows, each as if that row had not been learned.

        Args:
            x: learned rows (n x d).
            y: their targets (n x classes).
            removed: weight to leave out (n,), 1 for a row that was learned once.
            gammas: penalties above 0.
        """
        z = self.backend.product(x, self._vectors)
        for gamma in gammas:
            scaled = z / self._shifted(gamma)
            taken = (removed * (scaled * z).sum(1))[:, None]
            yield (self.backend.product(scaled, self._targets) - taken * y) / (1.0 - taken)

    def _shifted(self, gamma: float) -> Tensor:
        if gamma <= 0:
            raise InputError(f"gamma must be above 0, got {gamma}")
        return self._values.clamp_min(0.0) + gamma  # rounding may leave an eigenvalue just below 0


@dataclass(frozen=True, eq=False)
class GammaChoice:
    """Leave-one-out errors at every gamma that was tried.

    Attributes:
        gammas: the values tried, ascending.
        wrong: True where the prediction is wrong (gammas x n).
    """

    gammas: tuple[float, ...]
    wrong: NDArray[np.bool_]

    @property
    def gamma(self) -> float:
        """The smallest that is as good as the best: of the n rows on which the two differ, it loses at most sqrt(n).

        That much is chance. A backbone trained on the rows of the first phase separates them better than any later
        row, and so favours a larger gamma than later phases need: if the rows cannot decide, the smaller one is taken.
        """
        excess = self.wrong.astype(int) - self.wrong[self.wrong.sum(1).argmin()]
        as_good = excess.sum(1) <= np.sqrt(np.abs(excess).sum(1))
        return self.gammas[int(as_good.argmax())]


@dataclass(frozen=True, eq=False)
class TunedStream:
    """A stream with the gamma chosen for it."""

    choice: GammaChoice
    activation: Activation
    weights: Tensor  # (d x classes), after learning the phase
    left_out: Tensor  # (n x classes) its outputs for the left-out rows


def choose_gamma(
    read: Reader,
    sample: Block,
    expansion: Expansion,
    activation: Activation,
    present: Tensor,
    backend: Backend,
    gammas: Sequence[float] = GAMMAS,
    after: TunedStream | None = None,
) -> TunedStream:
    """Choose gamma for a stream sigma(B(F)) that learns the rows of one phase.

    Costs n d^2 flops for the rows and 9 d^3 for the decomposition, and temporarily five d x d matrices.

    Args:
        read: yields the blocks of the phase.
        sample: some of its rows, which are left out in turn.
        expansion: B.
        activation: sigma.
        present: columns of the classes of the phase.
        backend: where to compute.
        gammas: the values to try, ascending.
        after: the main stream, if this stream learns its residue; predictions then combine both, with C as in the
            paper.
    """
    size = expansion.projection.shape[1]
    require(5 * 8 * size**2, backend.device, f"choosing gamma with expansion_size={size}")

    def rows_of(block: Block) -> tuple[Tensor, Tensor]:
        z = expansion(block.features, backend.product)
        y = one_hot(block.columns, present)
        if after is not None:
            y = residue(y, backend.product(apply(after.activation, z), after.weights))
        return apply(activation, z), y

    gram, targets = backend.square(size), torch.zeros(size, len(present), dtype=torch.float64, device=backend.device)
    for block in read(_BLOCK_ROWS):
        x, y = block.weighted(*rows_of(block))
        targets += backend.product(x.T, y)
        backend.add_rows_to_gram_(gram, x)
    path = RidgePath(gram, targets, backend)
    x, y = rows_of(sample)
    right = torch.searchsorted(present, sample.columns)

    def wrong(left_out: Tensor) -> Tensor:
        logits = left_out if after is None else combined(after.left_out, left_out, COMPENSATION)
        return (logits.argmax(1) != right) | ~logits.isfinite().all(1)

    answers = torch.stack([wrong(outputs) for outputs in path.left_out(x, y, sample.removable, gammas)])
    choice = GammaChoice(tuple(gammas), answers.cpu().numpy())
    (left_out,) = path.left_out(x, y, sample.removable, [choice.gamma])
    return TunedStream(choice, activation, path.weights(choice.gamma), left_out)


def choose_gammas(
    phase: PhaseRows,
    expansion: Expansion,
    gamma: float | Auto,
    main_activation: Activation,
    compensations: Sequence[Compensation],
    backend: Backend,
) -> tuple[float, ...]:
    """Return gamma of the main and of each compensation stream: as given, or chosen from the first phase's rows."""

    def choose(activation: Activation, gammas: Sequence[float], after: TunedStream | None = None) -> TunedStream:
        if phase.sample is None:
            raise InputError("choosing gamma needs a sample of the phase's rows")
        some = phase.sample.cut(slice(GAMMA_ROWS))
        return choose_gamma(phase.read, some, expansion, activation, phase.present, backend, gammas, after)

    main = None
    if isinstance(gamma, str) or any(isinstance(stream.gamma, str) for stream in compensations):  # "auto"
        main = choose(main_activation, GAMMAS if isinstance(gamma, str) else (gamma,))
        gamma = main.choice.gamma
    chosen = [gamma]
    for stream in compensations:
        own = gamma if stream.gamma is None else stream.gamma
        chosen.append(choose(stream.activation, GAMMAS, main).choice.gamma if isinstance(own, str) else own)
    return tuple(chosen)


@dataclass(frozen=True)
class RatioFit:
    """The sums over phases that determine C: <e, r> and <r, r>.

    >>> fit = RatioFit().plus(np.array([[1.0, 0.0]]), np.array([[2.0, 0.0]]), np.ones(1), total=1.0)
    >>> fit.ratio, RatioFit().ratio
    (0.5, 0.6)
    """

    explained: float = 0.0
    energy: float = 0.0

    def plus(self, errors: Array, corrections: Array, weight: Array, total: float) -> RatioFit:
        """Return the fit with rows added that represent a phase.

        Args:
            errors: leave-one-out errors of the main stream (n x classes).
            corrections: leave-one-out outputs of the compensation stream (n x classes).
            weight: weight of each row (n,).
            total: weight of the phase that the rows together represent.
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
        """Return the fit to both models' rows together."""
        return RatioFit(self.explained + other.explained, self.energy + other.energy)

    @property
    def ratio(self) -> float:
        """C, 0 or more."""
        return max(self.explained / self.energy, 0.0) if self.energy > 0 else COMPENSATION
