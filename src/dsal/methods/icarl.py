"""iCaRL: incremental classifier and representation learning (Rebuffi et al., CVPR 2017)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional

from dsal.methods.contract import Phase
from dsal.methods.network.exemplars import Exemplars
from dsal.methods.network.losses import distillation
from dsal.methods.network.method import NetworkMethod
from dsal.methods.network.network import Output


@dataclass(kw_only=True, eq=False)
class ICaRL(NetworkMethod):
    """Herded exemplars, distillation, and the nearest mean of exemplars as classifier.

    L = CE(o, y) + strength KD_T(o[old], before) over new images and exemplars: the form that later comparisons of 50
    base classes use. The paper's own has a sigmoid for each class, and weights 1 for both parts.

    Args:
        exemplars_per_class: images kept of each class.
        exemplar_bytes: bytes of all of them together; None for no limit.
        classifier: ``nme``, the nearest mean of exemplars, or ``cnn``, the head.
        strength: weight of the distillation.
        temperature: T.
    """

    exemplars_per_class: int = 20
    exemplar_bytes: int | None = None
    classifier: Literal["nme", "cnn"] = "nme"
    strength: float = 1.0
    temperature: float = 2.0

    has_teacher = True

    def __post_init__(self) -> None:
        super().__post_init__()
        self._means: Tensor | None = None  # (classes, d), of the network as it is

    def _memory(self) -> Exemplars:
        return Exemplars(self.exemplars_per_class, self.exemplar_bytes)

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
        """Directions (classes, d) of the mean direction of each class's exemplars and their mirror images."""
        data = self.exemplars.data
        if data is None:
            raise ValueError("there are no exemplars to take means of")
        both = [functional.normalize(self.features_of(part)) for part in (data, data.flipped())]
        rows, labels = (both[0] + both[1]) / 2, data.labels
        means = [rows[(labels == label).to(rows.device)].mean(dim=0) for label in range(self._classes)]
        return functional.normalize(torch.stack(means))
