"""A network whose head grows: uint8 images to features, maps by depth, and scores of all classes so far."""

from __future__ import annotations

from typing import NamedTuple, cast

import torch
from torch import Generator, Tensor, nn

from dsal.backbones import Backbone
from dsal.backbones.backbone import ARCHITECTURES
from dsal.backbones.pooling import MappedNetwork
from dsal.methods.network.heads import HEADS, Head, LinearHead


class Output(NamedTuple):
    """What a network says of n images."""

    logits: Tensor  # (n, classes)
    features: Tensor  # (n, d)
    maps: tuple[Tensor, ...]  # (n, channels, h, w) at the end of each stage, earliest first


class GrowingNetwork(nn.Module):
    """A body of a known architecture and a head.

    Args:
        architecture: name of the body.
        in_channels: 3 for colour images, 1 for grey ones.
        head: name of the head.
    """

    pixel_mean: Tensor
    pixel_std: Tensor

    def __init__(self, architecture: str, in_channels: int, head: str) -> None:
        super().__init__()
        self.architecture = architecture
        self.body = ARCHITECTURES.get(architecture)(in_channels)
        mapped = cast(MappedNetwork, self.body)
        self._stage_ends = mapped.stage_ends
        self.head: Head = HEADS.get(head)(mapped.channels[self._stage_ends[-1]])
        self.register_buffer("pixel_mean", torch.zeros(1, in_channels, 1, 1))
        self.register_buffer("pixel_std", torch.ones(1, in_channels, 1, 1))

    def normalise(self, images: Tensor) -> Tensor:
        """Turn uint8 images (n, c, h, w) into the float32 input of the network."""
        x = (images.float() / 255 - self.pixel_mean) / self.pixel_std
        return x.contiguous(memory_format=torch.channels_last)

    def forward(self, x: Tensor) -> Output:
        """Normalised images (n, c, h, w) through body and head."""
        ends = [image for name, image in cast(MappedNetwork, self.body).maps(x) if name in self._stage_ends]
        features = ends[-1].mean(dim=(2, 3)).float()
        with torch.autocast(x.device.type, enabled=False):  # the head is small: it need not be fast, but exact
            return Output(self.head(features), features, tuple(ends))

    def grow(self, classes: int, generator: Generator) -> None:
        """Add outputs for new classes."""
        device = self.pixel_mean.device
        self.head.grow(classes, generator)
        self.head.to(device)

    @classmethod
    def of(cls, backbone: Backbone, head: str) -> GrowingNetwork:
        """Return the body of a trained backbone, with a head that has no classes yet."""
        network = cls(backbone.card.architecture, backbone.card.in_channels, head)
        network.body.load_state_dict(backbone.network.state_dict())
        network.pixel_mean.copy_(backbone.pixel_mean)
        network.pixel_std.copy_(backbone.pixel_std)
        return network

    @torch.no_grad()
    def adopt(self, weight: Tensor, bias: Tensor) -> bool:
        """Take over the head (classes, d) of base training, where it fits; says whether it did."""
        head = self.head
        if not isinstance(head, LinearHead) or head.groups != [len(weight)]:
            return False
        head.weights[0].copy_(weight)
        head.biases[0].copy_(bias)
        return True
