"""Heads that grow with the classes: the rows of each phase are parameters of their own, so old ones can be frozen."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Generator, Tensor, nn
from torch.nn import functional

from dsal.registry import Registry

HEADS: Registry[type[Head]] = Registry("head")


class Head(nn.Module):
    """Scores of classes from features (n, d); classes arrive in groups.

    Args:
        width: d.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.width = width
        self.weights = nn.ParameterList()  # (classes of the group, d) each

    @property
    def groups(self) -> list[int]:
        """Classes of each group."""
        return [len(weight) for weight in self.weights]

    @property
    def classes(self) -> int:
        """Classes in all."""
        return sum(self.groups)

    def grow(self, classes: int, generator: Generator) -> None:
        """Add a group, drawn as ``nn.Linear`` draws its weights: evenly from +-1/sqrt(d)."""
        bound = 1 / math.sqrt(self.width)
        self.weights.append(nn.Parameter((2 * torch.rand(classes, self.width, generator=generator) - 1) * bound))

    def freeze_old(self) -> None:
        """Leave all groups but the last as they are."""
        for weight in list(self.weights)[:-1]:
            weight.requires_grad_(False)

    def all_weights(self) -> Tensor:
        """(classes, d)."""
        return torch.cat(list(self.weights))


@HEADS.register("linear")
class LinearHead(Head):
    """w_c . f + b_c."""

    def __init__(self, width: int) -> None:
        super().__init__(width)
        self.biases = nn.ParameterList()

    def grow(self, classes: int, generator: Generator) -> None:
        """Add a group; weights and biases evenly from +-1/sqrt(d)."""
        super().grow(classes, generator)
        bound = 1 / math.sqrt(self.width)
        self.biases.append(nn.Parameter((2 * torch.rand(classes, generator=generator) - 1) * bound))

    def freeze_old(self) -> None:
        """Leave all groups but the last as they are."""
        super().freeze_old()
        for bias in list(self.biases)[:-1]:
            bias.requires_grad_(False)

    def forward(self, features: Tensor) -> Tensor:
        """(n, d) -> (n, classes)."""
        return functional.linear(features, self.all_weights(), torch.cat(list(self.biases)))


@HEADS.register("cosine")
class CosineHead(Head):
    """s cos(w_c, f), with s learned (LUCIR, eq. 4)."""

    def __init__(self, width: int) -> None:
        super().__init__(width)
        self.scale = nn.Parameter(torch.ones(1))

    def cosines(self, features: Tensor) -> Tensor:
        """cos(w_c, f): (n, d) -> (n, classes)."""
        return functional.linear(functional.normalize(features), functional.normalize(self.all_weights()))

    def forward(self, features: Tensor) -> Tensor:
        """(n, d) -> (n, classes)."""
        return self.scale * self.cosines(features)

    @torch.no_grad()
    def imprint(self, means: Sequence[Tensor]) -> None:
        """Set the last group to the directions of these class means (d,), as long as old weights are on average."""
        old = list(self.weights)[:-1]
        length = torch.cat(old).norm(dim=1).mean() if old else 1.0
        self.weights[-1].copy_(functional.normalize(torch.stack(list(means))) * length)
