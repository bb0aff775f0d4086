"""Statistics pooled from the maps of a network: which ones make up the features, and in which order.

Features have a kind, and each kind is the tail of the next, so that a narrower kind is a slice of a wider one:

- ``last``: the mean of each channel after the last stage (the paper's features);
- ``stages``: the mean of each channel after every stage, earliest first;
- ``blocks``: the mean and the standard deviation of each channel of every map, those of ``stages`` last.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Protocol

import torch
from torch import Tensor

KINDS = ("last", "stages", "blocks")
"""Kinds of features, narrowest first."""


class MappedNetwork(Protocol):
    """What a network must offer to serve as a backbone, besides being an ``nn.Module``.

    Attributes:
        channels: number of channels of each map, by its name, earliest first.
        stage_ends: names of the maps at which a stage ends, earliest first; the last of them is the network's output.
    """

    channels: Mapping[str, int]
    stage_ends: tuple[str, ...]

    def maps(self, x: Tensor) -> Iterator[tuple[str, Tensor]]:
        """Yield name and map, earliest first: (n, channels, h, w), tokens (n, t, channels) or vectors (n, channels)."""
        ...


def _mean(values: Tensor) -> Tensor:
    return values if values.ndim == 2 else values.mean(dim=_spatial_dims(values))


def _std(values: Tensor) -> Tensor:
    return values.var(dim=_spatial_dims(values), correction=0).sqrt()


def _spatial_dims(values: Tensor) -> tuple[int, ...]:
    return (1,) if values.ndim == 3 else (2, 3)


STATISTICS: Mapping[str, Callable[[Tensor], Tensor]] = {"mean": _mean, "std": _std}
"""Per channel, over the positions of a map: map -> (n, channels)."""


def offered_kinds(network: MappedNetwork) -> tuple[str, ...]:
    """Return the kinds of features that the network offers: ``blocks`` only if it has maps inside its stages."""
    return KINDS if len(network.channels) > len(network.stage_ends) else KINDS[:2]


def pooled_columns(network: MappedNetwork, kind: str) -> list[tuple[str, str]]:
    """Return pairs of map and statistic whose channels, side by side, are the features of a kind."""
    stages = [(name, "mean") for name in network.stage_ends]
    if kind == "last":
        return stages[-1:]
    if kind == "stages":
        return stages
    every = [(name, statistic) for name in network.channels for statistic in STATISTICS]
    return [column for column in every if column not in stages] + stages


def width(network: MappedNetwork, kind: str) -> int:
    """Return the number of features of a kind."""
    return sum(network.channels[name] for name, _ in pooled_columns(network, kind))


def pool(network: MappedNetwork, x: Tensor, kind: str) -> Tensor:
    """Compute features (n, d) of a kind in one pass; each map is released once its statistics are taken."""
    columns = pooled_columns(network, kind)
    pooled = {}
    for name, values in network.maps(x):
        for statistic, compute in STATISTICS.items():
            if (name, statistic) in columns:
                pooled[name, statistic] = compute(values)
    return torch.cat([pooled[column] for column in columns], dim=1).float()
