"""LUCIR: a unified classifier learned incrementally via rebalancing (Hou et al., CVPR 2019)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import cast

from torch import Tensor
from torch.nn import functional

from dsal.methods.contract import Phase
from dsal.methods.network.kit.growing_network import Output
from dsal.methods.network.kit.heads import CosineHead
from dsal.methods.network.kit.losses import less_forget, margin_ranking
from dsal.methods.network.kit.replay import ReplayMethod


@dataclass(kw_only=True, eq=False)
class LUCIR(ReplayMethod):
    """A cosine head, features that keep their direction, and a margin between old samples and new classes.

    L = CE(o, y) + strength sqrt(old / new) (1 - cos(f, f_before)) + ranking of old exemplars against new classes. Old
    rows of the head are frozen; new ones start as the mean directions of their class. The original removes the ReLU
    after the last block; here the network is the one that all methods share.

    Args:
        strength: weight of the less-forget term, before it grows with the number of old classes.
        ranking: weight of the ranking term.
        margin: margin of the ranking.
        negatives: number of new classes that an old sample is ranked against.
    """

    strength: float = 5.0
    ranking: float = 1.0
    margin: float = 0.5
    negatives: int = 2

    head = "cosine"
    has_teacher = True

    def _begin(self, phase: Phase) -> None:
        head = self._cosine()
        rows = functional.normalize(self.features_of(phase.samples))
        labels = phase.samples.labels.to(rows.device)
        new = range(head.classes - head.groups[-1], head.classes)
        head.imprint([rows[labels == label].mean(dim=0) for label in new])

    def _freeze(self) -> None:
        super()._freeze()
        self.network.head.freeze_old()

    def _loss(self, now: Output, before: Output | None, labels: Tensor, known: int) -> Tensor:
        if before is None:
            return functional.cross_entropy(now.logits, labels)
        return self._weighted(now, before, labels, known, 1.0)

    def _weighted(self, now: Output, before: Output, labels: Tensor, known: int, weight: float) -> Tensor:
        """Return the loss with the less-forget term multiplied by ``weight``."""
        loss, head = functional.cross_entropy(now.logits, labels), self._cosine()
        strength = weight * self.strength * math.sqrt(known / (head.classes - known))
        ranked = margin_ranking(now.logits / head.scale, labels, known, self.margin, self.negatives)
        return loss + strength * less_forget(now.features, before.features) + self.ranking * ranked

    def _cosine(self) -> CosineHead:
        return cast(CosineHead, self.network.head)
