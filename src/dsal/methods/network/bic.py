"""BiC: large scale incremental learning by bias correction (Wu et al., CVPR 2019)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import cast

import torch
from torch import Tensor
from torch.nn import functional
from torch.optim import SGD

from dsal.methods.contract import Phase
from dsal.methods.network.kit.exemplars import Split, balanced_split
from dsal.methods.network.kit.growing_network import Output
from dsal.methods.network.kit.heads import CorrectedHead
from dsal.methods.network.kit.losses import distillation
from dsal.methods.network.kit.part import Part
from dsal.methods.network.kit.replay import ReplayMethod
from dsal.methods.network.kit.stages import Stage
from dsal.training.recipe import Recipe
from dsal.training.sample import seed_of


class BiasCorrection(Part["BiC"]):
    """The correction of new classes: the identity while the network trains, then learned on the held-out images."""

    def freeze(self) -> None:
        cast(CorrectedHead, self.method.network.head).correction.requires_grad_(False)

    def split(self, phase: Phase) -> Split | None:
        """Return images to train the network on and others to learn the correction on; None if none can be spared."""
        if not self.method.classes_seen:
            return None
        seed = seed_of(self.method.seed, 800_000 + phase.index)
        return balanced_split(phase.samples, self.method.exemplars.data, self.method.held_out, seed)

    def end(self, phase: Phase) -> None:
        options, split = self.method, self.split(phase)
        if split is None or not options.bias_epochs:
            return
        outputs = [(output.logits, labels) for _, output, labels in self.method.read(split.held_out)]
        logits, labels = (torch.cat(parts) for parts in zip(*outputs, strict=True))
        generator = torch.Generator().manual_seed(seed_of(self.method.seed, 810_000 + phase.index))
        recipe = replace(
            self.method.recipe(options.bias_epochs, len(labels)), lr=options.bias_lr, milestones=(0.3, 0.6, 0.8, 0.9)
        )
        learn_correction_(
            cast(CorrectedHead, self.method.network.head), logits, labels, recipe, options.shift_penalty, generator
        )


@dataclass(kw_only=True, eq=False)
class BiC(ReplayMethod):
    """Distillation, then a bias correction of two parameters for new classes, learned on a few held-out images.

    First, L = lambda KD_T(o[old], before) + (1 - lambda) CE(o, y), with lambda = old / all classes (eq. 1 to 3). Then,
    with the network frozen, the scores of new classes become a o + b to undo the head's preference for new classes;
    a and b minimise the cross-entropy on a balanced set not used in the first training (eq. 4 and 5), plus 0.1 b^2 / 2
    as in the published code. The next phase distils corrected scores and starts with a = 1, b = 0. It stores the
    network, a and b, and the exemplars.

    With 20 exemplars per class, two of each are held out. They are not augmented: a and b must fit images as they come.
    The published batches have 2000 images; here they have ``batch_size``.

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
    parts = (BiasCorrection,)

    def loss(self, now: Output, before: Output | None, labels: Tensor, known: int) -> Tensor:
        if before is None:
            return functional.cross_entropy(now.logits, labels)
        return bic_loss(now.logits, before.logits, labels, self.temperature)

    def stage(self, number: int, phase: Phase, epochs: int) -> Stage | None:
        split = self.part(BiasCorrection).split(phase)
        if split is None or number > 0:
            return super().stage(number, phase, epochs)
        return Stage(epochs, split.training)


def learn_correction_(
    head: CorrectedHead, logits: Tensor, labels: Tensor, recipe: Recipe, penalty: float, generator: torch.Generator
) -> None:
    """Learn a and b of a head by SGD on scores with a = 1 and b = 0, in place: CE + penalty b^2 / 2 (BiC, eq. 5).

    Args:
        head: its last group is corrected.
        logits: (n, classes), of images as they are: augmented ones would be harder than those to predict.
        labels: (n,).
        recipe: epochs, batch size, learning rate and its milestones, momentum.
        penalty: of b.
        generator: for the order of the images.
    """
    correction, known = head.correction.requires_grad_(True), head.classes - head.groups[-1]
    optimiser = SGD(correction.parameters(), recipe.lr, recipe.momentum)
    for epoch in range(recipe.epochs):
        for group in optimiser.param_groups:
            group["lr"] = recipe.lr * recipe.lr_factor(epoch / recipe.epochs)
        for rows in torch.randperm(len(labels), generator=generator).to(labels.device).split(recipe.batch_size):
            corrected = torch.cat([logits[rows, :known], correction(logits[rows, known:])], dim=1)
            loss = functional.cross_entropy(corrected, labels[rows]) + penalty * correction.shift.square().sum() / 2
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()


def bic_loss(logits: Tensor, old: Tensor, labels: Tensor, temperature: float) -> Tensor:
    """Return lambda KD_T(o[old], before) + (1 - lambda) CE(o, y) (BiC, eq. 3): logits (n, classes), old (n, known)."""
    known = old.shape[1]
    old_fraction = known / logits.shape[1]  # lambda
    kept = distillation(logits[:, :known], old, temperature)
    return old_fraction * kept + (1 - old_fraction) * functional.cross_entropy(logits, labels)
