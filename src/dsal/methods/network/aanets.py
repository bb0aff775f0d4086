"""AANets: adaptive aggregation networks (Liu et al., CVPR 2021), on LUCIR and on PODNet."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from dsal.backbones.resnet import ResNet
from dsal.data.samples import Samples, joined
from dsal.errors import InputError
from dsal.methods.contract import Phase
from dsal.methods.network.kit.growing_network import GrowingNetwork
from dsal.methods.network.kit.network_method import NetworkMethod
from dsal.methods.network.kit.part import Part
from dsal.methods.network.lucir import LUCIR
from dsal.methods.network.podnet import PODNet
from dsal.training.sample import seed_of, shuffled_classes

Stable = Literal["scaled", "fixed", "free"]
BALANCED_BATCH = 100


class ScaledConv2d(nn.Module):
    """A convolution with frozen weights and a learned scale for each kernel.

    Args:
        conv: convolution to take the weights from; without bias, as in residual networks.
    """

    weight: Tensor

    def __init__(self, conv: nn.Conv2d) -> None:
        super().__init__()
        self.stride, self.padding = conv.stride, conv.padding
        self.register_buffer("weight", conv.weight.detach().clone())  # (out, in, h, w)
        self.scale = nn.Parameter(torch.ones_like(conv.weight[:, :, :1, :1]))

    def forward(self, x: Tensor) -> Tensor:
        return functional.conv2d(x, self.weight * self.scale, None, self.stride, self.padding)


class AggregatedBody(nn.Module):
    """Two residual networks that share the maps between their stages: a_l stable + (1 - a_l) plastic at stage l.

    Args:
        body: initial body of both.
        stable: what the stable one learns: a scale for each kernel (``scaled``), nothing (``fixed``) or all (``free``).
    """

    weights: Tensor

    def __init__(self, body: nn.Module, stable: Stable) -> None:
        super().__init__()
        if not isinstance(body, ResNet):
            raise InputError(f"AANets aggregates the stages of a residual network, got {type(body).__name__}")
        self.fixed, self.stage_ends, self.channels = stable == "fixed", body.stage_ends, body.channels
        self.stable, self.plastic = copy.deepcopy(body), body
        if stable == "scaled":
            for parent in list(self.stable.modules()):
                for name, child in list(parent.named_children()):
                    if isinstance(child, nn.Conv2d):
                        setattr(parent, name, ScaledConv2d(child))
        self.register_buffer("weights", torch.full((len(body.stage_ends),), 0.5))  # a, (stages,)

    def train(self, mode: bool = True) -> AggregatedBody:
        """Set the mode; a fixed stable network stays in evaluation mode."""
        super().train(mode)
        if self.fixed:
            self.stable.eval()
        return self

    def maps(self, x: Tensor) -> Iterator[tuple[str, Tensor]]:
        """Yield the name and map (n, channels, h, w) at the end of every stage, earliest first."""
        a, b, level = self.stable.stem(x), self.plastic.stem(x), 0
        for name in list(self.channels)[1:]:
            a, b = self.stable.get_submodule(name)(a), self.plastic.get_submodule(name)(b)
            if name in self.stage_ends:
                a = b = self.weights[level] * a + (1 - self.weights[level]) * b
                level += 1
                yield name, a


@dataclass(kw_only=True, eq=False)
class AANets:
    """Options of a stable and a plastic network, aggregated stage by stage with weights learned on a balanced set.

    From phase 1 on, there are two copies of the network of phase 0. In every phase the loss of the underlying method
    trains both; after each epoch of its first stage the aggregation weights a take one SGD step for each batch of a
    balanced set (the exemplars, and as many images of each new class), on the cross-entropy of the head's scores in
    evaluation mode. It stores both networks and the exemplars.

    Unlike the published code, the gradient of a is that of the batch alone (there it is never set to zero), without
    momentum and decay. At the published rate a hardly moves: the published code on PODNet fixes it at 0.5.

    Args:
        stable: what the stable network learns: ``scaled``, a scale for each kernel; ``fixed``, nothing; ``free``, all.
        aggregation_lr: learning rate of the aggregation weights.
    """

    stable: Stable = "scaled"
    aggregation_lr: float = 1e-8


class Aggregation(Part["_Options"]):
    """Two copies of the body from phase 1 on, and the weights that aggregate them; see :class:`AANets`."""

    def shape(self, network: GrowingNetwork) -> None:
        if len(network.head.groups) > 1 and not isinstance(network.body, AggregatedBody):
            network.body = AggregatedBody(network.body, self.method.stable).to(self.method.torch_device)

    def freeze(self) -> None:
        body = self.method.network.body
        if isinstance(body, AggregatedBody) and self.method.stable == "fixed":
            body.stable.requires_grad_(False)

    def end_epoch(self, phase: Phase, number: int) -> None:
        body, kept = self.method.network.body, self.method.exemplars.data
        if number > 0 or kept is None or not isinstance(body, AggregatedBody):
            return
        network, device = self.method.network.eval(), self.method.torch_device
        for images, labels in self.balanced(phase).batches(BALANCED_BATCH):
            body.weights.requires_grad_(True)
            logits = network(network.normalise(images.to(device))).logits
            loss = functional.cross_entropy(logits, labels.to(device))
            (gradient,) = torch.autograd.grad(loss, [body.weights])
            body.weights = body.weights.detach() - self.method.aggregation_lr * gradient

    def balanced(self, phase: Phase) -> Samples:
        """Return all exemplars and as many images of each new class; the draw is the same throughout a phase."""
        kept, labels = self.method.exemplars.data, phase.samples.labels.cpu()
        if kept is None:
            raise ValueError("there are no exemplars to balance")
        generator = torch.Generator().manual_seed(seed_of(self.method.seed, 600_000 + phase.index))
        each = int(torch.bincount(kept.labels).max())
        rows = torch.cat([own[:each] for own in shuffled_classes(labels, generator)])
        return joined([phase.samples.take(rows.to(phase.samples.labels.device)), kept])


class _Options(AANets, NetworkMethod):
    """What :class:`Aggregation` uses of a method."""


@dataclass(kw_only=True, eq=False)
class LUCIRAANets(AANets, LUCIR):
    """LUCIR on a stable and a plastic network; see :class:`AANets` and :class:`~dsal.methods.network.lucir.LUCIR`."""

    name = "lucir-aanets"
    title = "LUCIR + AANets"

    parts = (*LUCIR.parts, Aggregation)


@dataclass(kw_only=True, eq=False)
class PODNetAANets(AANets, PODNet):
    """PODNet on a stable and a plastic network; see :class:`AANets` and :class:`PODNet`."""

    name = "podnet-aanets"
    title = "PODNet + AANets"

    parts = (*PODNet.parts, Aggregation)
