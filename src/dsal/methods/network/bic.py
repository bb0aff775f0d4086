"""BiC: large scale incremental learning by bias correction (Wu et al., CVPR 2019)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

from torch import Tensor
from torch.nn import functional

from dsal.methods.contract import Phase
from dsal.methods.network.kit.growing_network import Output
from dsal.methods.network.kit.heads import CorrectedHead
from dsal.methods.network.kit.losses import distillation
from dsal.methods.network.kit.replay import ReplayMethod
from dsal.methods.network.kit.splits import Split, balanced_split
from dsal.methods.network.kit.stages import Stage
from dsal.training.fit import Batch, Forward
from dsal.training.sample import seed_of


@dataclass(kw_only=True, eq=False)
class BiC(ReplayMethod):
    """Distillation, then a bias correction of two parameters for new classes, learned on a few held-out images.

    First, L = lambda KD_T(o[old], before) + (1 - lambda) CE(o, y), with lambda = old / all classes (eq. 1 to 3). Then,
    with the network frozen, the scores of new classes become a o + b to undo the head's preference for new classes;
    a and b minimise the cross-entropy on a balanced set not used in the first training (eq. 4 and 5), plus 0.1 b^2 / 2
    as in the published code. The next phase distils corrected scores and starts with a = 1, b = 0. It stores the
    network, a and b, and the exemplars.

    With 20 exemplars per class, two of each are held out. The published batches have 2000 images; here they have
    ``batch_size``.

    Args:
        temperature: T.
        held_out: fraction of the exemplars of a class to learn a and b on, with as many images of each new class.
        bias_epochs: passes over these images.
        bias_lr: learning rate of a and b.
        shift_penalty: weight of b^2 / 2.
    """

    name = "bic"
    title = "BiC"

    epochs: int = 250
    milestones: tuple[float, ...] = (0.4, 0.6, 0.8)
    weight_decay: float = 2e-4
    temperature: float = 2.0
    held_out: float = 0.1
    bias_epochs: int = 200
    bias_lr: float = 0.1
    shift_penalty: float = 0.1

    head = "corrected"
    has_teacher = True

    def loss(self, now: Output, before: Output | None, labels: Tensor, known: int) -> Tensor:
        if before is None:
            return functional.cross_entropy(now.logits, labels)
        return bic_loss(now.logits, before.logits, labels, self.temperature)

    def _freeze(self) -> None:
        super()._freeze()
        self._corrected().correction.requires_grad_(False)

    def _stage(self, number: int, phase: Phase, epochs: int) -> Stage | None:
        split = self._split(phase) if self._classes and number <= 1 else None
        if split is None:
            return super()._stage(number, phase, epochs)
        if number == 0:
            return Stage(epochs, split.training)
        recipe = {"lr": self.bias_lr, "milestones": (0.3, 0.6, 0.8, 0.9), "weight_decay": 0.0}
        trained = self._corrected().correction
        return Stage(self.bias_epochs, split.held_out, loss=self._bias_loss, trained=trained, recipe=recipe)

    def _split(self, phase: Phase) -> Split | None:
        seed = seed_of(self.seed, 800_000 + phase.index)
        return balanced_split(phase.samples, self.exemplars.data, self.held_out, seed)

    def _bias_loss(self, forward: Forward, batch: Batch) -> tuple[Tensor, int]:
        self.network.eval()
        labels = batch.labels[batch.mine]
        logits = forward(self.network.normalise(batch.images[batch.mine])).logits
        penalty = self.shift_penalty * self._corrected().correction.shift.square().sum() / 2
        return functional.cross_entropy(logits, labels) + penalty, int((logits.argmax(1) == labels).sum())

    def _corrected(self) -> CorrectedHead:
        return cast(CorrectedHead, self.network.head)


def bic_loss(logits: Tensor, old: Tensor, labels: Tensor, temperature: float) -> Tensor:
    """Return lambda KD_T(o[old], before) + (1 - lambda) CE(o, y) (BiC, eq. 3): logits (n, classes), old (n, known)."""
    known = old.shape[1]
    old_fraction = known / logits.shape[1]  # lambda
    kept = distillation(logits[:, :known], old, temperature)
    return old_fraction * kept + (1 - old_fraction) * functional.cross_entropy(logits, labels)
