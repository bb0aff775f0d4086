"""Residual networks: ResNet-32 for 32x32 images, ResNet-18 for 32x32, 64x64 and 224x224 images.

They return *features*, never class scores, and offer the map of the stem (``"stem"``) and of every block
(``"layer1.0"``), from which ``dsal.backbones.pooling`` takes the statistics that a kind of features needs.

The parameter names of ResNet-18 are torchvision's, so that its checkpoints load.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn

from dsal.backbones.backbone import ARCHITECTURES

STEMS = {"3x3": (3, 1), "3x3/2": (3, 2), "7x7": (7, 2)}
"""Side and stride of the first convolution."""


class BasicBlock(nn.Module):
    """Two 3x3 convolutions and a shortcut (He et al., 2016)."""

    def __init__(self, width_in: int, width: int, stride: int, *, zero_pad: bool) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(width_in, width, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.downsample: nn.Module | None = None
        if stride != 1 or width_in != width:
            self.downsample = (
                ZeroPadShortcut(stride, width - width_in)
                if zero_pad
                else nn.Sequential(nn.Conv2d(width_in, width, 1, stride, bias=False), nn.BatchNorm2d(width))
            )

    def forward(self, x: Tensor) -> Tensor:
        shortcut = x if self.downsample is None else self.downsample(x)
        out = torch.relu(self.bn1(self.conv1(x)))
        return torch.relu(self.bn2(self.conv2(out)) + shortcut)


class ZeroPadShortcut(nn.Module):
    """The parameter-free shortcut of the CIFAR networks: subsample, then add channels of zeros."""

    def __init__(self, stride: int, channels: int) -> None:
        super().__init__()
        self.stride, self.channels = stride, channels

    def forward(self, x: Tensor) -> Tensor:
        x = x[:, :, :: self.stride, :: self.stride]
        return nn.functional.pad(x, (0, 0, 0, 0, 0, self.channels))


class ResNet(nn.Module):
    """Stages of basic blocks; the forward pass returns the pooled output of the last.

    Args:
        depths: blocks per stage.
        widths: channels per stage.
        stem: ``"3x3"`` (images of about 32 pixels), ``"3x3/2"`` with stride 2 (64 pixels, at the cost of 32) or
            ``"7x7"`` with stride 2 and pooling (224 pixels).
        in_channels: 3 for colour, 1 for grey.
        zero_pad: parameter-free shortcuts (ResNet-32) instead of 1x1 convolutions (ResNet-18).
    """

    def __init__(
        self,
        depths: tuple[int, ...],
        widths: tuple[int, ...],
        *,
        stem: str,
        in_channels: int = 3,
        zero_pad: bool = False,
    ) -> None:
        super().__init__()
        layers = [f"layer{number}" for number in range(1, len(depths) + 1)]
        self.stage_ends = tuple(f"{layer}.{depth - 1}" for layer, depth in zip(layers, depths, strict=True))
        self.channels = {"stem": widths[0]}
        large = stem == "7x7"
        kernel, stride = STEMS[stem]
        self.conv1 = nn.Conv2d(in_channels, widths[0], kernel, stride, kernel // 2, bias=False)
        self.bn1 = nn.BatchNorm2d(widths[0])
        self.maxpool: nn.Module = nn.MaxPool2d(3, 2, 1) if large else nn.Identity()
        width_in = widths[0]
        for layer, depth, width in zip(layers, depths, widths, strict=True):
            blocks = []
            for index in range(depth):
                stride = 2 if index == 0 and layer != layers[0] else 1
                blocks.append(BasicBlock(width_in, width, stride, zero_pad=zero_pad))
                self.channels[f"{layer}.{index}"] = width_in = width
            self.add_module(layer, nn.Sequential(*blocks))
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def stem(self, x: Tensor) -> Tensor:
        """Return the map (n, channels, h, w) that the first block takes."""
        return self.maxpool(torch.relu(self.bn1(self.conv1(x))))  # type: ignore[no-any-return]

    def maps(self, x: Tensor) -> Iterator[tuple[str, Tensor]]:
        """Yield name and map (n, channels, h, w) of the stem and of every block, earliest first."""
        x = self.stem(x)
        yield "stem", x
        for name in list(self.channels)[1:]:
            x = self.get_submodule(name)(x)
            yield name, x

    def forward(self, x: Tensor) -> Tensor:
        """Return the pooled output of the last stage: (n, its channels)."""
        for _, x in self.maps(x):  # noqa: B007, B020  (keeps the last one)
            pass
        return x.mean(dim=(2, 3))


@ARCHITECTURES.register("resnet32")
def resnet32(in_channels: int = 3) -> ResNet:
    """Build the ResNet-32 of the CIFAR experiments: 3 stages of 5 blocks, 16-32-64 channels, 0.46 M parameters."""
    return ResNet((5, 5, 5), (16, 32, 64), stem="3x3", in_channels=in_channels, zero_pad=True)


@ARCHITECTURES.register("resnet18-32")
def resnet18_32(in_channels: int = 3) -> ResNet:
    """Build a ResNet-18 with a 3x3 stem and no pooling, for 32x32 images."""
    return ResNet((2, 2, 2, 2), (64, 128, 256, 512), stem="3x3", in_channels=in_channels)


@ARCHITECTURES.register("resnet18-64")
def resnet18_64(in_channels: int = 3) -> ResNet:
    """Build a ResNet-18 with a 3x3 stem of stride 2, for 64x64 images: it costs what 32x32 images cost."""
    return ResNet((2, 2, 2, 2), (64, 128, 256, 512), stem="3x3/2", in_channels=in_channels)


@ARCHITECTURES.register("resnet18")
def resnet18(in_channels: int = 3) -> ResNet:
    """Build a ResNet-18 with the 7x7 stem, for 224x224 images; parameter names are torchvision's."""
    return ResNet((2, 2, 2, 2), (64, 128, 256, 512), stem="7x7", in_channels=in_channels)
