"""LUCIR: a unified classifier learned incrementally via rebalancing (Hou et al., CVPR 2019)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, cast

import torch
from torch import Tensor
from torch.nn import functional

from dsal.methods.contract import Phase
from dsal.methods.network.kit.growing_network import Output
from dsal.methods.network.kit.heads import CosineHead
from dsal.methods.network.kit.losses import less_forget, margin_ranking
from dsal.methods.network.kit.network_method import NetworkMethod
from dsal.methods.network.kit.part import FreezeOldRows, Part
from dsal.methods.network.kit.replay import ReplayMethod


class Imprint(Part[NetworkMethod]):
    """From phase 1 on, the rows of new classes start as the mean directions of their class.

    In phase 0 they do not: the features of an untrained network all point in the same direction.
    """

    def begin(self, phase: Phase) -> None:
        if not self.method.classes_seen:
            return
        head = self.method.network.head
        rows = functional.normalize(self.method.features_of(phase.samples))
        labels = phase.samples.labels.to(rows.device)
        new = range(head.classes - head.groups[-1], head.classes)
        head.imprint(functional.normalize(torch.stack([rows[labels == label].mean(dim=0) for label in new])))


@dataclass(kw_only=True, eq=False)
class LUCIR(ReplayMethod):
    """A cosine head, features that keep their direction, and a margin between old samples and new classes.

    L = CE(o, y) + strength sqrt(old / new) (1 - cos(f, f_before)) + ranking of old exemplars against new classes. Old
    rows of the head are frozen; from phase 1 on, new ones start as the mean directions of their class. The original
    removes the ReLU after the last block; here the network is the one that all methods share.

    Args:
        strength: weight of the less-forget term, before it grows with the number of old classes.
        ranking: weight of the ranking term.
        margin: margin of the ranking.
        negatives: number of new classes that an old sample is ranked against.
    """

    name = "lucir"
    title = "LUCIR"

    strength: float = 5.0
    ranking: float = 1.0
    margin: float = 0.5
    negatives: int = 2

    head = "cosine"
    has_teacher = True
    parts: ClassVar[tuple[type[Part[Any]], ...]] = (Imprint, FreezeOldRows)

    def loss(self, now: Output, before: Output | None, labels: Tensor, known: int) -> Tensor:
        if before is None:
            return functional.cross_entropy(now.logits, labels)
        return self._lucir_loss(now, before, labels, self.strength)

    def _lucir_loss(self, now: Output, before: Output, labels: Tensor, strength: float) -> Tensor:
        terms = {"ranking": self.ranking, "margin": self.margin, "negatives": self.negatives}
        return lucir_loss(now, before, labels, self.cosine_head().scale, strength=strength, **terms)  # type: ignore[arg-type]

    def cosine_head(self) -> CosineHead:
        """Return the head of the network that is being trained."""
        return cast(CosineHead, self.network.head)


def lucir_loss(
    now: Output,
    before: Output,
    labels: Tensor,
    scale: Tensor,
    *,
    strength: float,
    ranking: float,
    margin: float,
    negatives: int,
) -> Tensor:
    """Return CE(o, y) + lambda (1 - cos(f, f_before)) + ranking, with lambda = strength sqrt(old / new) (LUCIR, eq. 9).

    Args:
        now: output of the network for n images.
        before: output of the network before the phase.
        labels: (n,).
        scale: s of the cosine head: o = s cos(w, f), and the ranking is over cosines.
        strength: weight of the less-forget term, before it grows with the number of old classes.
        ranking: weight of the ranking term.
        margin: of the ranking.
        negatives: new classes that an old sample is ranked against.
    """
    known, classes = before.logits.shape[1], now.logits.shape[1]
    adaptive = strength * math.sqrt(known / (classes - known))  # lambda
    ranked = margin_ranking(now.logits / scale, labels, known, margin, negatives)
    forgotten = less_forget(now.features, before.features)
    return functional.cross_entropy(now.logits, labels) + adaptive * forgotten + ranking * ranked
