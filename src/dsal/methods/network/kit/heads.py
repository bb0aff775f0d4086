"""Heads that grow with the classes: the rows of each phase are separate parameters, so old ones can be frozen."""

from __future__ import annotations

import math

import torch
from torch import Generator, Tensor, nn
from torch.nn import functional

from dsal.base.registry import Registry

HEADS: Registry[type[Head]] = Registry("head")


class Head(nn.Module):
    """A head that scores classes from features (n, d); classes arrive in groups.

    Args:
        width: d.
        rows: rows of weights per class; those of a class are adjacent.
    """

    def __init__(self, width: int, rows: int = 1) -> None:
        super().__init__()
        self.width, self.rows = width, rows
        self.weights = nn.ParameterList()  # (classes of the group x rows, d) each

    @property
    def groups(self) -> list[int]:
        """Number of classes in each group."""
        return [len(weight) // self.rows for weight in self.weights]

    @property
    def classes(self) -> int:
        """Total number of classes."""
        return sum(self.groups)

    def grow(self, classes: int, generator: Generator) -> None:
        """Add a group with weights drawn uniformly from +-1/sqrt(d), as in ``nn.Linear``."""
        self.weights.append(self._drawn((classes * self.rows, self.width), generator))

    def _drawn(self, shape: tuple[int, ...], generator: Generator) -> nn.Parameter:
        return nn.Parameter((2 * torch.rand(shape, generator=generator) - 1) * (1 / math.sqrt(self.width)))

    def freeze_old(self) -> None:
        """Freeze all groups but the last."""
        for weight in list(self.weights)[:-1]:
            weight.requires_grad_(False)

    def all_weights(self) -> Tensor:
        """Return the rows of all groups: (classes, d), or more if a class has several."""
        return torch.cat(list(self.weights))

    def cosines(self, features: Tensor) -> Tensor:
        """Return cos(w, f) for all rows w: (n, d) -> (n, classes rows)."""
        return functional.linear(functional.normalize(features), functional.normalize(self.all_weights()))

    @torch.no_grad()
    def imprint(self, directions: Tensor) -> None:
        """Set the last group to these directions (classes rows, d), scaled to the mean length of old weights."""
        old = list(self.weights)[:-1]
        self.weights[-1].copy_(directions * (torch.cat(old).norm(dim=1).mean() if old else 1.0))


@HEADS.register("linear")
class LinearHead(Head):
    """w_c . f + b_c.

    Args:
        width: d.
        outputs: outputs per class; those of a class are adjacent.
    """

    def __init__(self, width: int, outputs: int = 1) -> None:
        super().__init__(width, outputs)
        self.biases = nn.ParameterList()

    def grow(self, classes: int, generator: Generator) -> None:
        """Add a group with weights and biases drawn uniformly from +-1/sqrt(d)."""
        super().grow(classes, generator)
        self.biases.append(self._drawn((classes * self.rows,), generator))

    def freeze_old(self) -> None:
        """Freeze all groups but the last."""
        super().freeze_old()
        for bias in list(self.biases)[:-1]:
            bias.requires_grad_(False)

    def forward(self, features: Tensor) -> Tensor:
        """Return scores: (n, d) -> (n, classes outputs)."""
        return functional.linear(features, self.all_weights(), torch.cat(list(self.biases)))


class Correction(nn.Module):
    """A learned affine map of scores: a o + b."""

    def __init__(self) -> None:
        super().__init__()
        self.scale, self.shift = nn.Parameter(torch.ones(1)), nn.Parameter(torch.zeros(1))

    def forward(self, logits: Tensor) -> Tensor:
        """Return corrected scores: (n, classes) -> (n, classes)."""
        return self.scale * logits + self.shift


@HEADS.register("corrected")
class CorrectedHead(LinearHead):
    """w_c . f + b_c, and a (w_c . f + b_c) + b for the last group if there is more than one (BiC, eq. 4)."""

    def __init__(self, width: int) -> None:
        super().__init__(width)
        self.correction = Correction()

    def grow(self, classes: int, generator: Generator) -> None:
        """Add a group, with a = 1 and b = 0."""
        super().grow(classes, generator)
        self.correction = Correction()

    def forward(self, features: Tensor) -> Tensor:
        """Return scores: (n, d) -> (n, classes)."""
        logits = super().forward(features)
        known = self.classes - self.groups[-1]
        return torch.cat([logits[:, :known], self.correction(logits[:, known:])], dim=1) if known else logits


@HEADS.register("cosine")
class CosineHead(Head):
    """s cos(w_c, f), with s learned (LUCIR, eq. 4)."""

    def __init__(self, width: int) -> None:
        super().__init__(width)
        self.scale = nn.Parameter(torch.ones(1))

    def forward(self, features: Tensor) -> Tensor:
        """Return scores: (n, d) -> (n, classes)."""
        return self.scale * self.cosines(features)


@HEADS.register("proxies")
class ProxyHead(Head):
    """s sum_k a_ck z_ck over K proxies of a class, with s learned (PODNet).

    z_ck = 2 cos(w_ck, f) - 2 is the negative squared distance between the directions of proxy and feature, and the
    weights a_c are the softmax of z_c: the nearest proxies of a class count most. The paper uses the cosine for z; its
    published code and results use the distance.

    Args:
        width: d.
        proxies: K.
    """

    def __init__(self, width: int, proxies: int = 10) -> None:
        super().__init__(width, proxies)
        self.scale = nn.Parameter(torch.ones(1))

    def forward(self, features: Tensor) -> Tensor:
        """Return scores: (n, d) -> (n, classes)."""
        near = (2 * self.cosines(features) - 2).view(len(features), -1, self.rows)  # (n, classes, K)
        return self.scale * (near.softmax(dim=2) * near).sum(dim=2)
