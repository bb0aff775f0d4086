"""EEIL: end-to-end incremental learning (Castro et al., ECCV 2018)."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor
from torch.nn import functional

from dsal.methods.contract import Phase
from dsal.methods.network.kit.growing_network import Output
from dsal.methods.network.kit.losses import grouped_distillation
from dsal.methods.network.kit.part import Part
from dsal.methods.network.kit.replay import ReplayMethod
from dsal.methods.network.kit.stages import Stage


class BalancedTeacher(Part["EEIL"]):
    """Before the second training: exemplars of all classes, and the network as it is then to distil."""

    def begin_stage(self, number: int, phase: Phase) -> None:
        if number == 1 and self.method.classes_seen and self.method.tune_epochs:
            self.method.memory.keep(phase)
            self.method.teacher = self.method.copied_network()


@dataclass(kw_only=True, eq=False)
class EEIL(ReplayMethod):
    """Separate distillation of the classes of each earlier phase, then the same again on a balanced set.

    L = CE(o, y) + strength sum_g KD_T(o[g], before[g]) over the groups g of classes that arrived together (eq. 1 to 3).
    The second training uses the exemplars of all classes, including new ones, and distils the output of the network
    after the first one, including new classes. A group of one class has nothing to distil: its softmax is always 1. It
    stores the network and the exemplars.

    Unlike the published code, gradients get no noise, and images are augmented only by crop and flip.

    Args:
        strength: weight of the distillation.
        temperature: T.
        tune_epochs: passes over the balanced set.
        tune_lr: learning rate on the balanced set.
    """

    name = "eeil"
    title = "EEIL"

    epochs: int = 40
    milestones: tuple[float, ...] = (0.25, 0.5, 0.75)
    weight_decay: float = 1e-4
    strength: float = 1.0
    temperature: float = 2.0
    tune_epochs: int = 30
    tune_lr: float = 0.01

    has_teacher = True
    parts = (BalancedTeacher,)

    def loss(self, now: Output, before: Output | None, labels: Tensor, known: int) -> Tensor:
        loss = functional.cross_entropy(now.logits, labels)
        if before is None:
            return loss
        groups = self.network.head.groups
        return loss + self.strength * grouped_distillation(now.logits, before.logits, groups, self.temperature)

    def stage(self, number: int, phase: Phase, epochs: int) -> Stage | None:
        balanced = self.exemplars.data
        if number == 1 and self.classes_seen and self.tune_epochs and balanced is not None:
            milestones = tuple(drop / 3 for drop in (1, 2))  # every 10 of 30 epochs
            return Stage(self.tune_epochs, balanced, recipe={"lr": self.tune_lr, "milestones": milestones})
        return super().stage(number, phase, epochs)
