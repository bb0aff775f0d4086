"""EWC: elastic weight consolidation (Kirkpatrick et al., PNAS 2017)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from dsal.methods.contract import Phase
from dsal.methods.network.kit.growing_network import Output
from dsal.methods.network.kit.losses import new_cross_entropy, quadratic_pull
from dsal.methods.network.kit.network_method import NetworkMethod


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

    def __post_init__(self) -> None:
        super().__post_init__()
        self._importance: dict[str, Tensor] = {}
        self._anchors: dict[str, Tensor] = {}

    def loss(self, now: Output, before: Output | None, labels: Tensor, known: int) -> Tensor:
        loss = new_cross_entropy(now.logits, labels, known)
        if not self._importance:
            return loss
        parameters = {name: self._turned(name, value) for name, value in self.network.named_parameters()}
        return loss + self.strength * quadratic_pull(parameters, self._anchors, self._importance)

    def _end(self, phase: Phase) -> None:
        found = {name: value.clamp(max=self.clip) for name, value in self._fisher(phase).items()}
        old = self._classes / self.network.head.classes  # a
        for name, before in self._importance.items():
            found[name] = old * before + (1 - old) * found[name]
        self._importance = found
        parameters = {name: value.detach().clone() for name, value in self.network.named_parameters()}
        self._anchors = {name: self._turned(name, value) for name, value in parameters.items()}

    def _turned(self, name: str, values: Tensor) -> Tensor:
        """Return a parameter or its gradient in the coordinates in which importance is measured: here its own."""
        return values

    def _fisher(self, phase: Phase) -> dict[str, Tensor]:
        """Return the mean of the squared gradients of batches."""
        network, batches = self.network.eval(), 0
        sums = {name: torch.zeros_like(value) for name, value in network.named_parameters()}
        for images, labels in phase.samples.batches(self.fisher_batch):
            logits = network(network.normalise(images.to(self._device))).logits
            gradients = torch.autograd.grad(
                functional.cross_entropy(logits, labels.to(self._device)), list(network.parameters())
            )
            for (name, total), gradient in zip(sums.items(), gradients, strict=True):
                total += self._turned(name, gradient) ** 2
            batches += 1
        return {name: total / batches for name, total in sums.items()}

    def _extra(self) -> dict[str, Tensor]:
        return {**_prefixed("importance", self._importance), **_prefixed("anchor", self._anchors)}

    def _restore_extra(self, extra: dict[str, Tensor]) -> None:
        self._importance = {k.removeprefix("importance."): v for k, v in extra.items() if k.startswith("importance.")}
        self._anchors = {k.removeprefix("anchor."): v for k, v in extra.items() if k.startswith("anchor.")}


def _prefixed(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {f"{prefix}.{name}": value for name, value in tensors.items()}
