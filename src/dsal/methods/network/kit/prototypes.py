"""The base class of methods that replay one mean feature per class to the head instead of images."""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, cast

import torch
from torch import Generator, Tensor
from torch.nn import functional

from dsal.methods.contract import Phase
from dsal.methods.network.kit.growing_network import Output
from dsal.methods.network.kit.heads import LinearHead
from dsal.methods.network.kit.losses import frobenius
from dsal.methods.network.kit.network_method import NetworkMethod
from dsal.methods.network.kit.part import Part
from dsal.training.fit import Batch, Forward


class Prototypes(Part[NetworkMethod]):
    """The mean feature of every class at the end of its phase; other statistics of features in subclasses."""

    tensors: ClassVar[tuple[str, ...]] = ("means",)

    def __init__(self, method: NetworkMethod) -> None:
        super().__init__(method)
        self.means = torch.empty(0, 0, device=method.torch_device)  # (classes, d)

    def end(self, phase: Phase) -> None:
        rows = self.method.features_of(phase.samples)
        labels = phase.samples.labels.to(rows.device)
        groups = [rows[labels == label] for label in phase.classes]
        means = torch.stack([group.mean(dim=0) for group in groups])
        self.means = torch.cat([self.means, means]) if len(self.means) else means
        self.measure(groups)

    def measure(self, groups: list[Tensor]) -> None:
        """Update other statistics from the features (n, d) of each class of a phase."""


@dataclass(kw_only=True, eq=False)
class PrototypeMethod(NetworkMethod):
    """A method that keeps a prototype p_c of every class: the mean feature of its images at the end of their phase.

    Prototypes are never corrected for the drift of features in later phases. They are means over unaugmented images;
    the published implementations use augmented images, and only those that fill batches.

    Args:
        temperature: T, which divides the scores in every cross-entropy.
        replay: weight of the cross-entropy of prototypes.
        distil: weight of the distance between features now and before the phase.
    """

    epochs: int = 101
    batch_size: int = 64
    optimiser: Literal["sgd", "adam"] = "adam"
    lr: float = 1e-3
    milestones: tuple[float, ...] = (45 / 101, 90 / 101)
    weight_decay: float = 2e-4
    temperature: float = 0.1
    replay: float = 10.0
    distil: float = 10.0

    has_teacher = True
    parts: ClassVar[tuple[type[Part[Any]], ...]] = (Prototypes,)

    @abstractmethod
    def replayed(self, drawn: Tensor, generator: Generator) -> Tensor:
        """Return the mean loss of the head on prototypes of old classes ``drawn`` (n,)."""

    @property
    def prototypes(self) -> Tensor:
        """The mean feature of every class, (classes, d)."""
        return self.part(Prototypes).means

    def inputs_of(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Return normalised images (n, c, h, w) and labels (n,): this process's part of the batch, then added ones."""
        return self.network.normalise(batch.images[batch.mine]), batch.labels[batch.mine]

    def batch_loss(self, forward: Forward, batch: Batch, known: int) -> tuple[Tensor, int]:
        x, labels = self.inputs_of(batch)
        now: Output = forward(x)
        loss, own = self.loss(now, self.before(x), labels, known), batch.labels[batch.mine]
        if known:
            drawn = torch.randint(known, (len(batch.labels),), generator=batch.generator).to(own.device)
            loss = loss + self.replay * self.replayed(drawn, batch.generator)
        return loss, int((self.scores_of(x, now)[: len(own)].argmax(1) == own).sum())

    def loss(self, now: Output, before: Output | None, labels: Tensor, known: int) -> Tensor:
        loss = functional.cross_entropy(now.logits / self.temperature, labels)
        if before is None:
            return loss
        # Each process sees 1 / team.size of the batch; this estimates the norm over the whole batch.
        return loss + self.distil * math.sqrt(self.team.size) * frobenius(now.features, before.features)

    def adopt(self, weight: Tensor, bias: Tensor) -> bool:
        # o / T then equals the output of the network passed to start().
        return self.network.adopt(self.temperature * weight, self.temperature * bias)

    def linear_head(self) -> LinearHead:
        """Return the head of the network that is being trained."""
        return cast(LinearHead, self.network.head)


def covariance(rows: Tensor) -> Tensor:
    """Return the sample covariance (d, d) of rows (n, d), divided by n - 1; zero for a single row."""
    centred = rows - rows.mean(dim=0)
    return centred.T @ centred / max(len(rows) - 1, 1)
