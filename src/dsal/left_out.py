"""Leave-one-out outputs of a learner in closed form: validation without held-out data."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from dsal.activations import apply
from dsal.combine import combined
from dsal.learner import Learner
from dsal.rows import Block
from dsal.streams import Auto, cleansed, one_hot, residue
from dsal.tuning import RatioFit
from dsal.validation import is_auto


def leave_one_out(
    learner: Learner, block: Block, present: Tensor, *, first: bool, compensated: bool = True
) -> tuple[Tensor, ...]:
    """Return each stream's outputs (n x classes), on the CPU, for rows of the last phase, each as if not learned.

    Exact in the main stream; in a compensation stream the residues of all other rows are held fixed. Costs
    4 n d_B^2 flops.

    Args:
        learner: it has just learned the phase.
        block: learned rows; of a weight above 1, one unit is left out, as for a repeated row.
        present: the columns of the classes of that phase.
        first: whether it was the first phase.
        compensated: whether to include the compensation streams.
    """

    def outputs() -> Iterator[Tensor]:
        main, *comps = learner.ridges
        y = one_hot(block.columns, torch.arange(learner.classes, device=learner.backend.device))
        z = learner.expand(block.features)
        fitted, left_out = main.leave_one_out(apply(learner.main_activation, z), y, block.share)
        yield left_out.cpu()
        for stream, ridge in zip(learner.compensations, comps, strict=True) if compensated else ():
            left_over = residue(y, fitted)
            if stream.cleanse and not first:
                left_over = cleansed(left_over, present)
            yield ridge.leave_one_out(apply(stream.activation, z), left_over, block.share)[1].cpu()

    return learner.team.broadcast_result(lambda: tuple(outputs()))


def review(learner: Learner, sample: Block, present: Tensor, total: float, compensation: float | Auto) -> Tensor:
    """Return leave-one-out logits (n x classes) of rows of the phase just learned.

    If C is ``"auto"``, these rows first update it. The first phase counts only until there is a second one.

    Args:
        learner: it has just learned the phase.
        sample: rows that represent the phase.
        present: the columns of its classes.
        total: weight of all its rows.
        compensation: C.
    """
    chooses = is_auto(compensation)
    main, *corrections = leave_one_out(
        learner, sample, present, first=learner.phases == 1, compensated=chooses or compensation != 0
    )
    if chooses:
        errors = one_hot(sample.columns.cpu(), torch.arange(learner.classes)) - main
        before = learner.ratio if learner.phases > 2 else RatioFit()
        weight = np.ones(len(main)) if sample.weight is None else sample.weight.cpu().numpy()
        learner.ratio = before.plus(errors.numpy(), corrections[0].numpy(), weight, total)
    return combined(main, corrections[0], learner.strength(compensation)) if corrections else main
