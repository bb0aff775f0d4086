"""What teachers say about a batch, and how far a student is from it.

A teacher that was trained with auxiliary heads for the recipe's transforms answers for transformed images, too, and
each of its heads teaches one of the student's (HSAKD, Yang et al., 2021). Any other teacher teaches the head only, on
upright images.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from dsal.backbones import Backbone
from dsal.training.outputs import Outputs, head_of, run
from dsal.training.recipe import Recipe

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
            versed = [run(own, x) for own in self.versed]
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
