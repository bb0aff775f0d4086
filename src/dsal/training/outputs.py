"""What a network answers in training: the scores of its head and auxiliary heads, and the features they stand on."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor, nn

from dsal.backbones import Backbone
from dsal.backbones.pooling import STATISTICS
from dsal.errors import InputError


class Outputs(NamedTuple):
    """Answers for a batch.

    Attributes:
        scores: of the head, (n, classes).
        heads: scores of the auxiliary heads, earliest stage first, (n, classes x transforms) each.
        pooled: mean of each channel after the last stage, (n, channels).
    """

    scores: Tensor
    heads: tuple[Tensor, ...] = ()
    pooled: Tensor | None = None


def run(model: Backbone, x: Tensor) -> Outputs:
    """Return all outputs for normalised images (n, c, h, w)."""
    ends = model.mapped.stage_ends
    maps = [values for name, values in model.mapped.maps(x) if name in ends]
    pooled = STATISTICS["mean"](maps[-1])
    return Outputs(head_of(model)(pooled), () if model.auxiliary is None else model.auxiliary(maps), pooled)


class Forward(nn.Module):
    """Network and heads as one module: normalised images in, scores out; all :class:`Outputs` if ``every``."""

    def __init__(self, model: Backbone, *, every: bool, compiled: bool) -> None:
        super().__init__()
        self.model, self.every = model, every
        self._run: Callable[[Backbone, Tensor], Outputs] = torch.compile(run) if every and compiled else run
        self.network: Callable[[Tensor], Tensor] = (
            torch.compile(model.network) if compiled and not every else model.network
        )

    def forward(self, x: Tensor) -> Tensor | Outputs:
        return self._run(self.model, x) if self.every else head_of(self.model)(self.network(x))


def head_of(model: Backbone) -> nn.Linear:
    """Return the head of a model that must have one."""
    if model.head is None:
        raise InputError("the model has no head to train")
    return model.head
