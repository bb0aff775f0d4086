"""LFL: less-forgetting learning (Jung et al., 2016)."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor
from torch.nn import functional

from dsal.methods.contract import Phase
from dsal.methods.network.losses import feature_distance
from dsal.methods.network.method import NetworkMethod
from dsal.methods.network.network import Output


@dataclass(kw_only=True, eq=False)
class LFL(NetworkMethod):
    """Cross-entropy over all classes with the old rows of the head frozen, and features that stay near.

    L = CE(o, y) + strength |f - f_before|^2 / 2. The paper's setting has the same classes in another domain and
    freezes the whole head; here new classes need new rows.

    Args:
        strength: weight of the distance of features; the paper's 1.6e-3.
    """

    strength: float = 1.6e-3

    has_teacher = True

    def _begin(self, phase: Phase) -> None:
        self._freeze()

    def _freeze(self) -> None:
        self.network.head.freeze_old()

    def _loss(self, now: Output, before: Output | None, labels: Tensor, known: int) -> Tensor:
        loss = functional.cross_entropy(now.logits, labels)
        return loss if before is None else loss + self.strength * feature_distance(now.features, before.features)
