"""EWC: elastic weight consolidation (Kirkpatrick et al., PNAS 2017)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional

from dsal.methods.contract import Phase
from dsal.methods.network.kit.growing_network import Output
from dsal.methods.network.kit.losses import new_cross_entropy, quadratic_pull
from dsal.methods.network.kit.network_method import NetworkMethod
from dsal.methods.network.kit.part import Part


class Importance(Part["EWC"]):
    """The importance F of every weight and the weights theta* at the end of the last phase."""

    tensors: ClassVar[tuple[str, ...]] = ("importance", "anchors")

    def __init__(self, method: EWC) -> None:
        super().__init__(method)
        self.importance: dict[str, Tensor] = {}  # F by parameter
        self.anchors: dict[str, Tensor] = {}  # theta*

    def pull(self) -> Tensor | None:
        """Return sum_i F_i (theta_i - theta*_i)^2 / 2; None in phase 0."""
        if not self.importance:
            return None
        parameters = {name: self.turned(name, value) for name, value in self.method.network.named_parameters()}
        return quadratic_pull(parameters, self.anchors, self.importance)

    def end(self, phase: Phase) -> None:
        self.turn(phase)
        found = {name: value.clamp(max=self.method.clip) for name, value in self._fisher(phase).items()}
        old = self.method.classes_seen / self.method.network.head.classes  # a
        for name, before in self.importance.items():
            found[name] = old * before + (1 - old) * found[name]
        self.importance = found
        parameters = {name: value.detach().clone() for name, value in self.method.network.named_parameters()}
        self.anchors = {name: self.turned(name, value) for name, value in parameters.items()}

    def turn(self, phase: Phase) -> None:
        """Choose the coordinates of a phase; here they are those of the network."""

    def turned(self, name: str, values: Tensor) -> Tensor:
        """Return a parameter or its gradient in the coordinates in which importance is measured."""
        return values

    def _fisher(self, phase: Phase) -> dict[str, Tensor]:
        """Return the mean of the squared gradients of batches."""
        network, device, batches = self.method.network.eval(), self.method.torch_device, 0
        sums = {name: torch.zeros_like(value) for name, value in network.named_parameters()}
        for images, labels in phase.samples.batches(self.method.fisher_batch):
            logits = network(network.normalise(images.to(device))).logits
            loss = functional.cross_entropy(logits, labels.to(device))
            gradients = torch.autograd.grad(loss, list(network.parameters()))
            for (name, total), gradient in zip(sums.items(), gradients, strict=True):
                total += self.turned(name, gradient) ** 2
            batches += 1
        return {name: total / batches for name, total in sums.items()}


@dataclass(kw_only=True, eq=False)
class EWC(NetworkMethod):
    """Cross-entropy over the new classes, and a pull of every weight to its old value, scaled by its importance.

    L = CE(o[new], y) + strength sum_i F_i (theta_i - theta*_i)^2 / 2. F is the mean of squared gradients of batches at
    the end of a phase, at most ``clip``, and over phases F <- a F + (1 - a) F_phase with a the fraction of old classes.
    Gradients are computed in evaluation mode, so that measuring F does not change the running statistics.

    Args:
        strength: weight of the pull.
        clip: largest importance of a weight.
        fisher_batch: images whose gradients are averaged before they are squared.
    """

    name = "ewc"
    title = "EWC"

    strength: float = 1000.0
    clip: float = 1e-4
    fisher_batch: int = 128

    parts = (Importance,)

    def loss(self, now: Output, before: Output | None, labels: Tensor, known: int) -> Tensor:
        loss, pull = new_cross_entropy(now.logits, labels, known), self.part(Importance).pull()
        return loss if pull is None else loss + self.strength * pull
