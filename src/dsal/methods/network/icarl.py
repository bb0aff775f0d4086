"""iCaRL: incremental classifier and representation learning (Rebuffi et al., CVPR 2017)."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor
from torch.nn import functional

from dsal.methods.network.kit.growing_network import Output
from dsal.methods.network.kit.losses import distillation
from dsal.methods.network.kit.replay import Classifier, ReplayMethod


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

    name = "icarl"
    title = "iCaRL"

    classifier: Classifier = "nme"
    strength: float = 1.0
    temperature: float = 2.0

    has_teacher = True

    @property
    def readout(self) -> Classifier:
        return self.classifier

    def loss(self, now: Output, before: Output | None, labels: Tensor, known: int) -> Tensor:
        loss = functional.cross_entropy(now.logits, labels)
        if before is None:
            return loss
        return loss + self.strength * distillation(now.logits[:, :known], before.logits, self.temperature)
