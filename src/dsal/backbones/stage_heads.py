"""Auxiliary classifiers on the maps at which the stages of a network end, used in training only.

HSAKD (Yang et al., 2021) puts a copy of all later residual stages between a map and its classifier. These branches are
much cheaper: one convolution for each halving of the map, or none at all.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor, nn

from dsal.backbones.pooling import MappedNetwork
from dsal.base.registry import check_name
from dsal.errors import InputError

WIDEST = 128
"""Channels of a branch, at most; those of a pooled branch."""


class StageHeads(nn.Module):
    """One branch and one linear classifier for every stage.

    Args:
        network: gives the number of stages and their channels.
        kind: name in :data:`BRANCHES`.
        outputs: of each classifier.
    """

    def __init__(self, network: MappedNetwork, kind: str, outputs: int) -> None:
        super().__init__()
        check_name("kind of auxiliary heads", kind, BRANCHES)
        widths = [network.channels[name] for name in network.stage_ends]
        branches = [BRANCHES[kind](widths[stage:]) for stage in range(len(widths))]
        self.branches = nn.ModuleList(branch for branch, _ in branches)
        self.heads = nn.ModuleList(nn.Linear(width, outputs) for _, width in branches)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, maps: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """Return the scores (n, outputs) of each stage, earliest first.

        Args:
            maps: (n, channels, h, w) at the end of each stage, earliest first.
        """
        if any(values.ndim != 4 for values in maps):
            raise InputError("auxiliary heads need maps of shape (n, channels, height, width) at the end of each stage")
        return tuple(
            head(branch(values).mean(dim=(2, 3)))
            for branch, head, values in zip(self.branches, self.heads, maps, strict=True)
        )


class _Statistics(nn.Module):
    """Mean and standard deviation of each channel: (n, c, h, w) -> (n, 2c, 1, 1)."""

    def forward(self, values: Tensor) -> Tensor:
        variance, mean = torch.var_mean(values.float(), dim=(2, 3), correction=0, keepdim=True)
        return torch.cat([mean, (variance + 1e-5).sqrt()], dim=1)  # the root of zero has no gradient


def _convolution(width_in: int, width: int, side: int, stride: int) -> list[nn.Module]:
    padding = side // 2
    return [nn.Conv2d(width_in, width, side, stride, padding, bias=False), nn.BatchNorm2d(width), nn.ReLU()]


def _convolutions(widths: Sequence[int]) -> tuple[nn.Module, int]:
    """Build a branch of one 3x3 convolution of stride 2 for each later stage, and one more; return it and its width."""
    layers, width = list[nn.Module](), widths[0]
    for later in (*widths[1:], widths[-1]):
        layers += _convolution(width, min(later, WIDEST), 3, 2)
        width = min(later, WIDEST)
    return nn.Sequential(*layers), width


def _pooled(widths: Sequence[int]) -> tuple[nn.Module, int]:
    """Build a branch with one hidden layer on the mean and standard deviation of each channel."""
    return nn.Sequential(_Statistics(), *_convolution(2 * widths[0], WIDEST, 1, 1)), WIDEST


BRANCHES: Mapping[str, Callable[[Sequence[int]], tuple[nn.Module, int]]] = {
    "convolution": _convolutions,
    "pooled": _pooled,
}
"""Branches by name: channels of a stage and of those after it -> (map -> map), and the channels of the latter."""
