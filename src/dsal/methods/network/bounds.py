"""Lower and upper bound: training on each phase alone, and on the images of all phases so far."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor
from torch.nn import functional

from dsal.methods.network.kit.exemplars import KeepEverything
from dsal.methods.network.kit.growing_network import Output
from dsal.methods.network.kit.losses import new_cross_entropy
from dsal.methods.network.kit.network_method import NetworkMethod


@dataclass(kw_only=True, eq=False)
class Finetune(NetworkMethod):
    """Cross-entropy over the classes of the phase."""

    name = "finetune"
    title = "Fine-tuning"

    def loss(self, now: Output, before: Output | None, labels: Tensor, known: int) -> Tensor:
        return new_cross_entropy(now.logits, labels, known)


@dataclass(kw_only=True, eq=False)
class JointNetwork(NetworkMethod):
    """Cross-entropy over all classes so far, on all images so far, starting from the network of the previous phase."""

    name = "joint-network"
    title = "Joint training"

    policy = KeepEverything

    def loss(self, now: Output, before: Output | None, labels: Tensor, known: int) -> Tensor:
        return functional.cross_entropy(now.logits, labels)
