"""The loss of base training, put together from the parts that a recipe asks for.

    loss = head + auxiliary_weight * (mean over auxiliary heads) + relation * relational

Each of the first two is the cross-entropy to the labels, or, to the fraction ``distillation``, that to the teachers.
The head learns the classes of upright images. The auxiliary heads learn class and transform of all images, so that the
head need not do both. Each of several processes takes means over its own images.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from dsal.backbones import Backbone
from dsal.training.augment import mixup, quarter_turns, resized
from dsal.training.distillation import Answers, Teachers, distance, relations
from dsal.training.fit import Batch, Forward
from dsal.training.outputs import Outputs
from dsal.training.recipe import Recipe
from dsal.training.transforms import joint_labels, transformed


class Objective:
    """A loss for :class:`dsal.training.fit.Fit`.

    Args:
        model: what is trained; normalises the images.
        recipe: which parts the loss has.
        teachers: for a recipe that distils.
        turns: outputs of the head per class: 4 if it tells rotations apart (``rotation_share``), else 1.
    """

    def __init__(self, model: Backbone, recipe: Recipe, teachers: Teachers, turns: int) -> None:
        self.model, self.recipe, self.teachers, self.turns = model, recipe, teachers, turns

    def __call__(self, forward: Forward, batch: Batch) -> tuple[Tensor, int]:
        """Return the mean loss over this process's images, and how many of them were classified correctly.

        A transformed image counts as correct if the last auxiliary head gets class and transform right.
        """
        recipe, images, labels = self.recipe, batch.images, batch.labels
        which = torch.zeros_like(labels)
        if recipe.rotation_share:
            images, which = quarter_turns(images, recipe.rotation_share, batch.generator)
            labels = self.turns * labels + which
        if recipe.transforms:
            images, which = transformed(images, recipe.transforms, recipe.transform_share, batch.generator)
        x = resized(self.model.normalise(images), recipe.size(batch.progress))
        partner, weight = None, 1.0
        if recipe.mixup:
            x, partner, weight = mixup(x, recipe.mixup, batch.generator)
        mine, targets = x[batch.mine].contiguous(memory_format=torch.channels_last), labels[batch.mine]
        answer, which = forward(mine), which[batch.mine]
        outputs = answer if isinstance(answer, Outputs) else Outputs(answer)
        losses, related = self._labelled(outputs, targets, which), None
        if recipe.distillation or recipe.relation:
            answers = self.teachers.ask(mine, which == 0, batch.number)
            losses, related = self._taught(losses, outputs, answers), self._related(outputs, answers)
        if partner is not None:
            others = self._labelled(outputs, labels[partner][batch.mine], which)
            losses = [weight * loss + (1 - weight) * other for loss, other in zip(losses, others, strict=True)]
        loss = losses[0]
        if outputs.heads:
            loss = loss + recipe.auxiliary_weight * torch.stack(losses[1:]).mean()
        if related is not None:
            loss = loss + recipe.relation * related
        return loss, self._hits(outputs, targets, which)

    def _labelled(self, outputs: Outputs, labels: Tensor, which: Tensor) -> list[Tensor]:
        """Compute the cross-entropy to the labels: of the head, then of each auxiliary head."""
        scores, targets = outputs.scores.float(), labels
        if self.recipe.transforms:
            scores, targets = scores[which == 0], labels[which == 0]
        joint = joint_labels(labels, which, len(self.recipe.transforms))
        pairs = [(scores, targets), *((head.float(), joint) for head in outputs.heads)]
        smoothing = self.recipe.label_smoothing
        return [functional.cross_entropy(own, target, label_smoothing=smoothing) for own, target in pairs]

    def _taught(self, losses: list[Tensor], outputs: Outputs, answers: Answers) -> list[Tensor]:
        """Move the losses towards the distance to the teachers, for every head that they teach."""
        upright = outputs.scores.float()[answers.known][:, :: self.turns]
        pairs = [(upright, answers.scores), *zip(outputs.heads, answers.heads, strict=False)]
        temperature, share = self.recipe.temperature, self.recipe.distillation
        taught = [distance(own.float(), target.float(), temperature) for own, target in pairs]
        return [torch.lerp(loss, own, share) for loss, own in zip(losses, taught, strict=False)] + losses[len(taught) :]

    def _related(self, outputs: Outputs, answers: Answers) -> Tensor | None:
        """Compute the cross-entropy of the relations between images to the teachers'."""
        if answers.relations is None or outputs.pooled is None:
            return None
        return functional.cross_entropy(relations(outputs.pooled[answers.known]), answers.relations)

    def _hits(self, outputs: Outputs, labels: Tensor, which: Tensor) -> int:
        hits = outputs.scores.argmax(dim=1) == labels
        if self.recipe.transforms:
            joint = outputs.heads[-1].argmax(dim=1) == joint_labels(labels, which, len(self.recipe.transforms))
            hits = torch.where(which == 0, hits, joint)
        return int(hits.sum())
