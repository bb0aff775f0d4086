"""LwF: learning without forgetting (Li and Hoiem, ECCV 2016)."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from dsal.methods.network.kit.growing_network import Output
from dsal.methods.network.kit.losses import distillation, new_cross_entropy
from dsal.methods.network.kit.network_method import NetworkMethod


@dataclass(kw_only=True, eq=False)
class LwF(NetworkMethod):
    """Cross-entropy over the new classes, and distillation of the previous network's output on new images.

    L = CE(o[new], y) + strength KD_T(o[old], before). No image is kept: results published under this name with 20
    exemplars per class belong to another method.

    Args:
        strength: weight of the distillation; 3 as in PyCIL (1 in the paper, for other tasks).
        temperature: T.
    """

    name = "lwf"
    title = "LwF"

    strength: float = 3.0
    temperature: float = 2.0

    has_teacher = True

    def loss(self, now: Output, before: Output | None, labels: Tensor, known: int) -> Tensor:
        loss = new_cross_entropy(now.logits, labels, known)
        if before is None:
            return loss
        return loss + self.strength * distillation(now.logits[:, :known], before.logits, self.temperature)
