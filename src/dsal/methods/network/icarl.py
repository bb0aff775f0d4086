"""iCaRL: incremental classifier and representation learning (Rebuffi et al., CVPR 2017)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional

from dsal.methods.contract import Phase
from dsal.methods.network.kit.growing_network import Output
from dsal.methods.network.kit.losses import distillation
from dsal.methods.network.kit.replay import ReplayMethod


@dataclass(kw_only=True, eq=False)
class ICaRL(ReplayMethod):
    """Herded exemplars, distillation, and the nearest mean of exemplars as classifier.

    L = CE(o, y) + strength KD_T(o[old], before) over new images and exemplars: the form used by later comparisons with
    50 base classes. The paper's own loss has a sigmoid for each class, and weight 1 for both parts.

    Args:
        classifier: ``nme``, the nearest mean of exemplars, or ``cnn``, the head.
        strength: weight of the distillation.
        temperature: T.
    """

    classifier: Literal["nme", "cnn"] = "nme"
    strength: float = 1.0
    temperature: float = 2.0

    has_teacher = True

    def __post_init__(self) -> None:
        super().__post_init__()
        self._means: Tensor | None = None  # (classes, d), of the current network

    def _loss(self, now: Output, before: Output | None, labels: Tensor, known: int) -> Tensor:
        loss = functional.cross_entropy(now.logits, labels)
        if before is None:
            return loss
        return loss + self.strength * distillation(now.logits[:, :known], before.logits, self.temperature)

    def _end(self, phase: Phase) -> None:
        self._means = None

    def _scores(self, images: Tensor, output: Output) -> Tensor:
        if self.classifier == "cnn":
            return output.logits
        if self._means is None:
            self._means = self.exemplar_means()
        return -torch.cdist(functional.normalize(output.features), self._means)

    def exemplar_means(self) -> Tensor:
        """Return unit-length means (classes, d) of the unit-length features of exemplars and their mirror images."""
        data = self.exemplars.data
        if data is None:
            raise ValueError("there are no exemplars to take means of")
        both = [functional.normalize(self.features_of(part)) for part in (data, data.flipped())]
        rows, labels = (both[0] + both[1]) / 2, data.labels
        means = [rows[(labels == label).to(rows.device)].mean(dim=0) for label in range(self._classes)]
        return functional.normalize(torch.stack(means))
