"""Fine-tuning: the network is trained on each phase alone, without any measure against forgetting: the lower bound."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

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
