"""Joint training: every phase trains the network on the images of all phases so far, the upper bound."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor
from torch.nn import functional

from dsal.methods.network.kit.growing_network import Output
from dsal.methods.network.kit.memory import KeepEverything
from dsal.methods.network.kit.network_method import NetworkMethod


@dataclass(kw_only=True, eq=False)
class JointNetwork(NetworkMethod):
    """Cross-entropy over all classes so far, on all images so far, starting from the network of the previous phase."""

    name = "joint-network"
    title = "Joint training"

    policy = KeepEverything

    def loss(self, now: Output, before: Output | None, labels: Tensor, known: int) -> Tensor:
        return functional.cross_entropy(now.logits, labels)
