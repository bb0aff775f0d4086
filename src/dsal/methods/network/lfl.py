"""LFL: less-forgetting learning (Jung et al., 2016)."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from dsal.methods.network.kit.growing_network import Output
from dsal.methods.network.kit.losses import feature_distance, new_cross_entropy
from dsal.methods.network.kit.network_method import NetworkMethod
from dsal.methods.network.kit.part import FreezeOldRows


@dataclass(kw_only=True, eq=False)
class LFL(NetworkMethod):
    """Cross-entropy over the new classes with the old rows of the head frozen, and features that stay close.

    L = CE(o[new], y) + strength |f - f_before|^2 / 2. The paper's setting has the same classes in another domain and
    freezes the whole head; here new classes need new rows. Cross-entropy over all classes would move the features away
    from the frozen rows of the old ones, whose images are gone.

    Args:
        strength: weight of the feature distance; 1.6e-3 as in the paper.
    """

    name = "lfl"
    title = "LFL"

    strength: float = 1.6e-3

    has_teacher = True
    parts = (FreezeOldRows,)

    def loss(self, now: Output, before: Output | None, labels: Tensor, known: int) -> Tensor:
        loss = new_cross_entropy(now.logits, labels, known)
        return loss if before is None else loss + self.strength * feature_distance(now.features, before.features)
