"""A network with a growing head: uint8 images to features, maps at each stage, and scores of all classes so far."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, cast

import torch
from numpy.typing import NDArray
from torch import Generator, Tensor, nn

from dsal.backbones import Backbone
from dsal.backbones.backbone import ARCHITECTURES
from dsal.backbones.pooling import MappedNetwork
from dsal.methods.network.kit.heads import HEADS, Head, LinearHead


class Output(NamedTuple):
    """The output of a network for n images."""

    logits: Tensor  # (n, classes)
    features: Tensor  # (n, d)
    maps: tuple[Tensor, ...]  # (n, channels, h, w) at the end of each stage, earliest first


class GrowingNetwork(nn.Module):
    """A body of a registered architecture and a head.

    Args:
        architecture: name of the body.
        in_channels: 3 for colour images, 1 for grey ones.
        head: name of the head.
        options: options of the head.
    """

    pixel_mean: Tensor
    pixel_std: Tensor

    def __init__(self, architecture: str, in_channels: int, head: str, **options: Any) -> None:
        super().__init__()
        self.architecture = architecture
        self.body = ARCHITECTURES.get(architecture)(in_channels)
        mapped = cast(MappedNetwork, self.body)
        self._stage_ends = mapped.stage_ends
        self.head: Head = HEADS.get(head)(mapped.channels[self._stage_ends[-1]], **options)
        self.register_buffer("pixel_mean", torch.zeros(1, in_channels, 1, 1))
        self.register_buffer("pixel_std", torch.ones(1, in_channels, 1, 1))

    def normalise(self, images: Tensor) -> Tensor:
        """Convert uint8 images (n, c, h, w) to the float32 input of the network."""
        x = (images.float() / 255 - self.pixel_mean) / self.pixel_std
        return x.contiguous(memory_format=torch.channels_last)

    def features(self, x: Tensor) -> tuple[Tensor, tuple[Tensor, ...]]:
        """Return features (n, d) of normalised images (n, c, h, w), and the maps at the end of each stage."""
        ends = [image for name, image in cast(MappedNetwork, self.body).maps(x) if name in self._stage_ends]
        return ends[-1].mean(dim=(2, 3)).float(), tuple(ends)

    def forward(self, x: Tensor) -> Output:
        """Run normalised images (n, c, h, w) through body and head."""
        features, ends = self.features(x)
        with torch.autocast(x.device.type, enabled=False):  # the head is small: precision matters more than speed
            return Output(self.head(features), features, ends)

    def grow(self, classes: int, generator: Generator) -> None:
        """Add outputs for new classes."""
        device = self.pixel_mean.device
        self.head.grow(classes, generator)
        self.head.to(device)

    @classmethod
    def of(cls, backbone: Backbone, head: str, **options: Any) -> GrowingNetwork:
        """Return a network with the body of a trained backbone and a head without classes."""
        network = cls(backbone.card.architecture, backbone.card.in_channels, head, **options)
        network.body.load_state_dict(backbone.network.state_dict())
        network.pixel_mean.copy_(backbone.pixel_mean)
        network.pixel_std.copy_(backbone.pixel_std)
        return network

    @torch.no_grad()
    def adopt(self, weight: Tensor, bias: Tensor) -> bool:
        """Copy the head (classes, d) of base training if it fits; return whether it did."""
        head = self.head
        if not isinstance(head, LinearHead) or [rows.shape for rows in head.weights] != [weight.shape]:
            return False
        head.weights[0].copy_(weight)
        head.biases[0].copy_(bias)
        return True


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
