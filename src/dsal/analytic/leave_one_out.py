"""Leave-one-out outputs of a learner in closed form: validation without held-out data."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from dsal.analytic.activations import apply
from dsal.analytic.combine import combined
from dsal.analytic.learner import Learner
from dsal.analytic.ridge import Ridge
from dsal.analytic.rows import Block
from dsal.analytic.streams import Auto, cleansed, is_auto, one_hot, residue
from dsal.analytic.tuning import RatioFit

_SIGNS = 32  # random vectors to estimate a trace


def leave_one_out(
    learner: Learner,
    block: Block,
    present: Tensor,
    *,
    first: bool,
    compensated: bool = True,
    total: float | None = None,
) -> tuple[Tensor, ...]:
    """Return each stream's outputs (n x classes), on the CPU, for rows of the last phase, each as if not learned.

    Exact in the main stream; in a compensation stream the residues of all other rows are held fixed. Costs
    4 n d_B^2 flops.

    Without a row i, the main stream would leave other residues for the other rows j too. With e_i the residue of row i,
    h = X_M (G_M + gamma I)^-1 X_M^T and k the same of the compensation stream, this adds to the output for row i

        (sum_j k_ij h_ji) e_i / ((1 - h_ii) (1 - k_ii)),

    which is returned after the outputs of each compensation stream if ``total`` is given. The sum runs over the block
    and is scaled to the phase: exact if the block is the phase.

    Args:
        learner: it has just learned the phase.
        block: learned rows; of a weight above 1, one unit is left out, as for a repeated row.
        present: the columns of the classes of that phase.
        first: whether it was the first phase.
        compensated: whether to include the compensation streams.
        total: weight of all rows of the phase.
    """

    def outputs() -> Iterator[Tensor]:
        main, *comps = learner.ridges
        y = one_hot(block.columns, torch.arange(learner.classes, device=learner.backend.device))
        z, removed = learner.expand(block.features), block.removable
        x = apply(learner.main_activation, z)
        fitted, left_out, solved = main.leave_one_out(x, y, removed)
        yield left_out.cpu()
        for stream, ridge in zip(learner.compensations, comps, strict=True) if compensated else ():
            left_over = residue(y, fitted)
            if stream.cleanse and not first:
                left_over = cleansed(left_over, present)
            x_comp = apply(stream.activation, z)
            _, left_out, solved_comp = ridge.leave_one_out(x_comp, left_over, removed)
            yield left_out.cpu()
            if total is not None:
                h, k = x @ solved, x_comp @ solved_comp  # (n x n)
                taken = (1.0 - removed * h.diagonal()) * (1.0 - removed * k.diagonal())
                yield ((_others(k * h.T, block, total) * removed / taken)[:, None] * left_over).cpu()

    return learner.team.broadcast_result(lambda: tuple(outputs()))


def _others(products: Tensor, block: Block, total: float) -> Tensor:
    """Return sum_j w_j products_ij (n,) over the rows of the phase, less what is left out of row i."""
    weight, own = block.removable if block.weight is None else block.weight, products.diagonal()
    rest = weight.sum() - weight
    scale = torch.where(rest > 0, (total - weight) / rest, 0.0)
    return scale * (products @ weight - weight * own) + (weight - block.removable) * own


def output_moments(ridge: Ridge, counts: Tensor) -> tuple[Tensor, Tensor] | None:
    """Return the mean leave-one-out output of each class's rows (classes x classes), and the covariance within classes.

    No row is needed. With n_c rows of class c, the mean of their fitted outputs f is W^T Q_c / n_c, and the sum of all
    f f^T is W^T G W = W^T (Q - gamma W). Leaving a row with target y out changes f to (f - h y) / (1 - h). Here h is
    the mean leverage of all rows, (d - gamma tr((G + gamma I)^-1)) / n; Hutchinson's method estimates the trace.

    Args:
        ridge: learned from one-hot targets.
        counts: the number, or total weight, of each class's rows (classes,); 0 for a class without rows.

    Returns:
        None if the outputs are the targets, to within rounding: then they tell nothing about other rows.
    """
    weights, n = ridge.weights(), counts.sum()
    signs = torch.from_numpy(np.random.RandomState(0).choice([-1.0, 1.0], (ridge.size, _SIGNS))).to(weights.device)
    trace = (signs * ridge.solve(signs)).sum() / _SIGNS
    left = 1.0 - (ridge.size - ridge.gamma * trace) / n
    if left < 1e-6:
        return None
    means = (weights.T @ ridge.targets).T / counts.clamp_min(1e-300)[:, None]  # (class of the row x output)
    squares = weights.T @ (ridge.targets - ridge.gamma * weights)
    within = (squares - (means * counts[:, None]).T @ means) / n
    return (means - (1.0 - left) * torch.eye(len(means), device=means.device)) / left, within / left**2


def review(learner: Learner, sample: Block, present: Tensor, total: float, compensation: float | Auto) -> Tensor:
    """Return leave-one-out logits (n x classes) of rows of the phase just learned; exact if they are all of its rows.

    If C is ``"auto"``, these rows first update it. The first phase counts only until there is a second one.

    Args:
        learner: it has just learned the phase.
        sample: rows that represent the phase.
        present: the columns of its classes.
        total: weight of all its rows.
        compensation: C.
    """
    chooses = is_auto(compensation)
    main, *comps = leave_one_out(
        learner, sample, present, first=learner.phases == 1, compensated=chooses or compensation != 0, total=total
    )
    if chooses:
        errors = one_hot(sample.columns.cpu(), torch.arange(learner.classes)) - main
        before = learner.ratio if learner.phases > 2 else RatioFit()
        weight = np.ones(len(main)) if sample.weight is None else sample.weight.cpu().numpy()
        learner.ratio = before.plus(errors.numpy(), comps[0].numpy(), weight, total)
    return combined(main, comps[0] + comps[1], learner.strength(compensation)) if comps else main
