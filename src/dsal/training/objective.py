"""The loss of base training, put together from the parts that a recipe asks for.

    loss = head + auxiliary_weight * (mean over auxiliary heads) + relation * relational

Each of the first two is the cross-entropy to the labels, or, to the fraction ``distillation``, that to the teachers.
The head learns the classes of upright images. The auxiliary heads learn class and transform of all images, so that the
head need not do both. Each of several processes takes means over its own images.

A teacher that was trained with auxiliary heads for the recipe's transforms answers for transformed images, too, and
each of its heads teaches one of the student's (HSAKD, Yang et al., 2021). Any other teacher teaches the head only, on
upright images.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from dsal.backbones import Backbone
from dsal.backbones.pooling import STATISTICS
from dsal.errors import InputError
from dsal.training.augment import ROTATIONS, joint_labels, mixup, resized, transformed
from dsal.training.fit import Batch, Forward
from dsal.training.recipe import Recipe


class Outputs(NamedTuple):
    """Answers for a batch.

    Attributes:
        scores: of the head, (n, classes).
        heads: scores of the auxiliary heads, earliest stage first, (n, classes x transforms) each.
        pooled: mean of each channel after the last stage, (n, channels).
    """

    scores: Tensor
    heads: tuple[Tensor, ...] = ()
    pooled: Tensor | None = None


def all_outputs(model: Backbone, x: Tensor) -> Outputs:
    """Return all outputs for normalised images (n, c, h, w)."""
    ends = model.mapped.stage_ends
    maps = [values for name, values in model.mapped.maps(x) if name in ends]
    pooled = STATISTICS["mean"](maps[-1])
    return Outputs(head_of(model)(pooled), () if model.auxiliary is None else model.auxiliary(maps), pooled)


class NetworkWithHeads(nn.Module):
    """A network and its heads as one module: normalised images in, scores out; all :class:`Outputs` if ``every``."""

    def __init__(self, model: Backbone, *, every: bool, compiled: bool) -> None:
        super().__init__()
        self.model, self.every = model, every
        self._run = torch.compile(all_outputs) if every and compiled else all_outputs
        self.network = torch.compile(model.network) if compiled and not every else model.network

    def forward(self, x: Tensor) -> Tensor | Outputs:
        return self._run(self.model, x) if self.every else head_of(self.model)(self.network(x))


def head_of(model: Backbone) -> nn.Linear:
    """Return the head of a model that must have one."""
    if model.head is None:
        raise InputError("the model has no head to train")
    return model.head


RELATION_TEMPERATURE = 0.1


@dataclass(frozen=True)
class Answers:
    """The teachers' mean probabilities for a batch of n images.

    Attributes:
        known: images that the teachers know, (n,): all, or the upright ones.
        scores: what the student's head should say about the known images, (known, classes).
        heads: what the student's auxiliary heads should say, (n, classes x transforms) each; empty if no teacher has
            such heads.
        relations: of the known images, see :func:`relations`; ``None`` if they are not asked for.
    """

    known: Tensor
    scores: Tensor
    heads: tuple[Tensor, ...] = ()
    relations: Tensor | None = None


class Teachers:
    """The teachers of a training.

    Args:
        backbones: with heads for the classes of the training, in evaluation mode.
        recipe: of the student.
        heads: number of the student's auxiliary heads.
        autocast: context for the networks.
    """

    def __init__(
        self,
        backbones: Sequence[Backbone],
        recipe: Recipe,
        heads: int,
        autocast: Callable[[], AbstractContextManager[object]],
    ) -> None:
        self.recipe, self.heads, self.autocast = recipe, heads, autocast
        self.versed = [own for own in backbones if heads and knows(own, recipe)]
        self.others = [own for own in backbones if own not in self.versed]
        self._kept: dict[int, Answers] = {}  # by number of the batch, if views repeat

    @torch.no_grad()
    def ask(self, x: Tensor, upright: Tensor, number: int) -> Answers:
        """Return the answers for normalised images; with repeating views, each view is asked for once.

        Args:
            x: (n, c, h, w).
            upright: which of them are not transformed, (n,).
            number: of the batch.
        """
        if number in self._kept:
            return self._kept[number]
        with self.autocast():
            versed = [all_outputs(own, x) for own in self.versed]
            others = [self._plain(own, x[upright]) for own in self.others]
        answers = self._combined(versed, others, upright)
        if self.recipe.views:
            self._kept[number] = answers
        return answers

    def _plain(self, teacher: Backbone, x: Tensor) -> Outputs:
        pooled = teacher.network(x)
        return Outputs(head_of(teacher)(pooled), pooled=pooled)

    def _combined(self, versed: list[Outputs], others: list[Outputs], upright: Tensor) -> Answers:
        scores = self._mean([*(own.scores for own in others), *(own.scores[upright] for own in versed)])
        if not versed:
            return Answers(upright, scores, relations=self._related(others))
        every = self._mean([own.scores for own in versed])
        every[upright] = scores
        heads = [self._mean([_opposite(own.heads, at, self.heads) for own in versed]) for at in range(self.heads)]
        if self.recipe.views:  # they are kept: half the memory
            heads = [head.half() for head in heads]
        return Answers(torch.ones_like(upright), every, tuple(heads), self._related(versed))

    def _related(self, outputs: Sequence[Outputs]) -> Tensor | None:
        """Return the mean relations of the images in several teachers."""
        if not self.recipe.relation:
            return None
        return torch.stack([relations(own.pooled).exp() for own in outputs if own.pooled is not None]).mean(dim=0)

    def _mean(self, scores: Sequence[Tensor]) -> Tensor:
        """Return the mean probabilities of teachers from their scores (n, outputs) each."""
        stacked = torch.stack(list(scores)).float()
        return (stacked / self.recipe.temperature).softmax(dim=2).mean(dim=0)


def knows(teacher: Backbone, recipe: Recipe) -> bool:
    """Return whether a teacher has auxiliary heads for the transforms of a recipe."""
    return teacher.auxiliary is not None and teacher.card.transforms == recipe.transforms


def _opposite(heads: Sequence[Tensor], at: int, count: int) -> Tensor:
    """Return the teacher's head for the student's head ``at`` of ``count``: the last for the last, and so on backwards.

    If the teacher has fewer, its earliest serves all earlier ones.
    """
    return heads[max(len(heads) - count + at, 0)]


def distance(scores: Tensor, probabilities: Tensor, temperature: float) -> Tensor:
    """Compute the cross-entropy to probabilities at a temperature, scaled so that gradients keep their size."""
    return temperature**2 * functional.cross_entropy(scores / temperature, probabilities)


def relations(pooled: Tensor) -> Tensor:
    """Return how each image relates to every other of the batch: log-probabilities (n, n - 1).

    The softmax of cosines between centred features, without those of an image and itself.
    """
    rows = functional.normalize(pooled.float() - pooled.float().mean(dim=0), dim=1)
    n, cosines = len(rows), rows @ rows.T
    others = cosines.flatten()[1:].view(n - 1, n + 1)[:, :-1].reshape(n, n - 1)  # all but the diagonal
    return (others / RELATION_TEMPERATURE).log_softmax(dim=1)


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
            images, which = transformed(images, ROTATIONS, recipe.rotation_share, batch.generator)
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
