"""Networks as plain arrays and back: the shape of a network as facts, its weights by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor

from dsal.methods.network.kit.growing_network import GrowingNetwork

Arrays = dict[str, NDArray[Any]]


def network_facts(network: GrowingNetwork) -> dict[str, Any]:
    """Return what must be known to build a network of the same shape."""
    return {
        "architecture": network.architecture,
        "in_channels": network.pixel_mean.shape[1],
        "groups": network.head.groups,
    }


def build_network(facts: Mapping[str, Any], head: str, options: Mapping[str, Any]) -> GrowingNetwork:
    """Return a network of the shape that :func:`network_facts` described, with any weights."""
    network = GrowingNetwork(facts["architecture"], facts["in_channels"], head, **options)
    for classes in facts["groups"]:
        network.grow(classes, torch.Generator())
    return network


def to_arrays(tensors: Mapping[str, Tensor], prefix: str) -> Arrays:
    """Return copies of tensors as arrays, named ``prefix.name``."""
    return {f"{prefix}.{name}": value.detach().cpu().numpy().copy() for name, value in tensors.items()}


def to_tensors(arrays: Mapping[str, NDArray[Any]], device: torch.device | str = "cpu") -> dict[str, Tensor]:
    """Return copies of arrays as tensors."""
    return {name: torch.from_numpy(array.copy()).to(device) for name, array in arrays.items()}
