"""SSRE: self-sustaining representation expansion (Zhu et al., CVPR 2022)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Generator, Tensor, nn
from torch.nn import functional

from dsal.backbones.resnet import BasicBlock, ResNet
from dsal.errors import InputError
from dsal.methods.contract import Phase
from dsal.methods.network.kit.growing_network import GrowingNetwork, Output
from dsal.methods.network.kit.losses import nearest_prototype
from dsal.methods.network.kit.network_method import NetworkMethod
from dsal.methods.network.kit.part import Part
from dsal.methods.network.kit.prototypes import PrototypeMethod, Prototypes


class AdaptedConv2d(nn.Module):
    """A 3x3 convolution with a parallel 1x1 convolution, the adapter, which can be folded into it.

    W x + A x = (W + A in the centre of 3x3 zeros) x: one convolution computes both.

    Args:
        conv: W, with bias.
    """

    def __init__(self, conv: nn.Conv2d) -> None:
        super().__init__()
        self.conv = conv
        self.adapter = nn.Parameter(torch.zeros_like(conv.weight[:, :, :1, :1]))  # A, (out, in, 1, 1)

    def whole(self) -> Tensor:
        """Return W + A, (out, in, 3, 3)."""
        return self.conv.weight + functional.pad(self.adapter, (1, 1, 1, 1))

    def forward(self, x: Tensor) -> Tensor:
        return functional.conv2d(x, self.whole(), self.conv.bias, self.conv.stride, self.conv.padding)

    @torch.no_grad()
    def fold_(self) -> None:
        """Set W to W + A, and A to zero."""
        self.conv.weight.copy_(self.whole())
        self.adapter.zero_()


class Adapters(Part[NetworkMethod]):
    """Adapters from phase 1 on: they alone learn, and are folded into the network at the end of a phase."""

    def shape(self, network: GrowingNetwork) -> None:
        if not isinstance(network.body, ResNet):
            raise InputError(f"SSRE adapts residual networks, got {network.architecture}")
        if len(network.head.groups) > 1:
            add_adapters_(network.body)

    def freeze(self) -> None:
        if self.method.classes_seen:
            self.method.network.body.requires_grad_(False)
            for conv in adapted(self.method.network.body):
                conv.adapter.requires_grad_(True)

    def end(self, phase: Phase) -> None:
        for conv in adapted(self.method.network.body):
            conv.fold_()


@dataclass(kw_only=True, eq=False)
class SSRE(PrototypeMethod):
    """A frozen network with 1x1 adapters that are folded into it after each phase, and prototypes that select images.

    With s = max_c cos(f, p_c) over old classes, L = mean (1 - s) CE(o / T, y) + distil sum s |f - f_before| over the
    images of a batch + replay CE(h(p_c) / T, c), with h the head and c drawn uniformly from old classes, as many as
    images: an image similar to an old class keeps its features, any other teaches the new class. After phase 0, batch
    normalisation is folded into the convolutions; from then on only the head and the adapters of 3x3 convolutions are
    trained. It stores the network and the prototypes: no image.

    A network passed to ``start`` is used unchanged. The base training of the published code (SSRE, ``Trainer_cvpr.py``)
    was not released; here it is that of the other methods, with T. As in that code, the gradient also goes through s
    (PyCIL's version stops it).
    """

    name = "ssre"
    title = "SSRE"

    epochs: int = 60
    base_epochs: int | None = 100
    batch_size: int = 128
    lr: float = 2e-4
    base_lr: float | None = 1e-3
    milestones: tuple[float, ...] = (0.75,)
    weight_decay: float = 5e-4
    distil: float = 1.0

    parts = (Adapters, Prototypes)  # prototypes are those of the folded network

    def loss(self, now: Output, before: Output | None, labels: Tensor, known: int) -> Tensor:
        each = functional.cross_entropy(now.logits / self.temperature, labels, reduction="none")
        if before is None:
            return each.mean()
        like_old = nearest_prototype(now.features, self.prototypes)  # s, (n,)
        moved: Tensor = (now.features - before.features).norm(dim=1)
        # Each process sees 1 / team.size of the batch, but the sum is over the whole batch.
        return ((1 - like_old) * each).mean() + self.distil * self.team.size * (like_old * moved).sum()

    def replayed(self, drawn: Tensor, generator: Generator) -> Tensor:
        return functional.cross_entropy(self.network.head(self.prototypes[drawn]) / self.temperature, drawn)


def adapted(body: nn.Module) -> list[AdaptedConv2d]:
    """Return all convolutions with an adapter."""
    return [module for module in body.modules() if isinstance(module, AdaptedConv2d)]


def add_adapters_(body: ResNet) -> None:
    """Fold batch normalisation into the convolutions of a residual network, and add adapters to those in blocks."""
    if isinstance(body.bn1, nn.Identity):
        return  # adapters were added before
    body.conv1, body.bn1 = folded(body.conv1, body.bn1), nn.Identity()  # type: ignore[assignment]
    for block in [module for module in body.modules() if isinstance(module, BasicBlock)]:
        block.conv1, block.bn1 = AdaptedConv2d(folded(block.conv1, block.bn1)), nn.Identity()  # type: ignore[assignment]
        block.conv2, block.bn2 = AdaptedConv2d(folded(block.conv2, block.bn2)), nn.Identity()  # type: ignore[assignment]
        if isinstance(block.downsample, nn.Sequential):
            conv, norm = block.downsample
            block.downsample = nn.Sequential(folded(conv, norm), nn.Identity())  # type: ignore[arg-type]


@torch.no_grad()
def folded(conv: nn.Conv2d, norm: nn.BatchNorm2d) -> nn.Conv2d:
    """Return one convolution with bias, equal to both in evaluation mode: gamma (W x - mean) / sd + beta."""
    scale = norm.weight / (norm.running_var + norm.eps).sqrt()  # type: ignore[operator,union-attr]
    one = nn.Conv2d(conv.in_channels, conv.out_channels, conv.kernel_size, conv.stride, conv.padding)  # type: ignore[arg-type]
    one.weight.copy_(conv.weight * scale[:, None, None, None])
    one.bias.copy_(norm.bias - norm.running_mean * scale)  # type: ignore[operator,union-attr]
    return one.to(conv.weight.device, memory_format=torch.channels_last)  # type: ignore[call-overload,no-any-return]
