"""Online hyper-parameter optimisation (Liu et al., AAAI 2023), on LUCIR."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import NamedTuple, cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from dsal.errors import InputError
from dsal.methods.contract import Phase
from dsal.methods.network.kit.bandit import Exp3
from dsal.methods.network.kit.growing_network import GrowingNetwork, Output
from dsal.methods.network.kit.heads import CosineHead
from dsal.methods.network.kit.losses import distillation
from dsal.methods.network.kit.splits import Split, balanced_split
from dsal.methods.network.kit.stages import Stage
from dsal.methods.network.lucir import LUCIR
from dsal.training.fit import Batch, Forward
from dsal.training.sample import seed_of


class Arm(NamedTuple):
    """Hyper-parameters of the training of a phase."""

    features: float  # weight of the less-forget term: stability of features
    logits: float  # weight of the distillation of scores: stability of predictions
    lr: float  # learning rate: plasticity


@dataclass(kw_only=True, eq=False)
class OnlineLUCIR(LUCIR):
    """LUCIR with the balance of stability and plasticity chosen in every phase by a bandit (Exp3).

    L = LUCIR's loss, its less-forget term times alpha, + beta T^2 0.25 KL(before[old] || o[old])_T. Before a phase is
    trained, a copy of the network is trained for some epochs with each arm (alpha, beta, lr) that the bandit draws; the
    reward is its accuracy on a balanced set held out of new images and exemplars. The phase is then trained on all of
    them with the arm of the largest weight. If nothing can be held out, or there is a single arm, the first arm is
    used: with the defaults, LUCIR itself. It stores the network and the exemplars.

    The published code has a bandit for (alpha, beta) and a second one for the learning rate, does not divide rewards by
    probabilities, also draws the last arm, and also chooses between the nearest mean and the head.

    Args:
        feature_weights: alphas to choose from.
        logit_weights: betas to choose from.
        rates: learning rates to choose from; empty for ``lr`` alone.
        temperature: T.
        draws: arms drawn in a phase.
        draw_epochs: epochs to try each arm for.
        exploration: exploration of the bandit.
        held_out: fraction of the exemplars of a class to compute rewards on, with as many images of each new class.
    """

    name = "online-lucir"
    title = "Online LUCIR"

    feature_weights: tuple[float, ...] = (1.0, 0.0, 0.1, 0.5, 10.0)
    logit_weights: tuple[float, ...] = (0.0, 0.1, 0.5, 1.0, 10.0)
    rates: tuple[float, ...] = (0.1, 0.05)
    temperature: float = 2.0
    draws: int = 30
    draw_epochs: int = 20
    exploration: float = 0.1
    held_out: float = 0.1

    def __post_init__(self) -> None:
        super().__post_init__()
        rates = self.rates or (self.lr,)
        self.arms = [Arm(*values) for values in product(self.feature_weights, self.logit_weights, rates)]
        if not self.arms or min(self.draws, self.draw_epochs) < 0:
            raise InputError("feature_weights and logit_weights must not be empty, draws and draw_epochs 0 or more")
        self._bandit = Exp3(len(self.arms), self.exploration)
        self._arm = 0
        self._trial: GrowingNetwork | None = None

    @property
    def arm(self) -> Arm:
        """The arm the network is being trained with, or was in the last phase."""
        return self.arms[self._arm]

    def _begin(self, phase: Phase) -> None:
        super()._begin(phase)
        self._bandit, self._arm = Exp3(len(self.arms), self.exploration), 0
        if self._tries(phase):
            self._draw(0, phase)

    def _tries(self, phase: Phase) -> int:
        """Return the number of trials before a phase is trained."""
        useful = bool(self._classes) and len(self.arms) > 1 and self.draw_epochs
        return self.draws if useful and self._split(phase) is not None else 0

    def _split(self, phase: Phase) -> Split | None:
        seed = seed_of(self.seed, 400_000 + phase.index)
        return balanced_split(phase.samples, self.exemplars.data, self.held_out, seed)

    def _draw(self, number: int, phase: Phase) -> None:
        generator = torch.Generator().manual_seed(seed_of(self.seed, 10_000 * phase.index + number))
        self._arm = self._bandit.draw(generator)
        self._trial = copy.deepcopy(self.network)

    def _begin_stage(self, number: int, phase: Phase) -> None:
        tries, split = self._tries(phase), self._split(phase) if self._trial is not None else None
        if split is None or number > tries:
            return
        self._bandit.reward(self._arm, self._trial_accuracy(split))
        if number < tries:
            self._draw(number, phase)
        else:
            self._trial, self._arm = None, self._bandit.best

    @torch.no_grad()
    def _trial_accuracy(self, split: Split) -> float:
        if self._trial is None:
            raise ValueError("no arm is being tried")
        network, hits = self._trial.eval(), 0
        for images, labels in split.held_out.batches(500):
            predicted = network(network.normalise(images.to(self._device))).logits.argmax(1).cpu()
            hits += int((predicted == labels.cpu()).sum())
        return hits / len(split.held_out)

    def _stage(self, number: int, phase: Phase, epochs: int) -> Stage | None:
        tries = self._tries(phase)
        split, trial = self._split(phase), self._trial
        if number < tries and split is not None and trial is not None:
            head = self._cosine()
            trained = nn.ModuleList([trial.body, nn.ParameterList([head.weights[-1], head.scale])])
            return Stage(
                self.draw_epochs,
                split.training,
                loss=partial(self._trial_loss, self._classes),
                module=trial,
                trained=trained,
                recipe={"lr": self.arm.lr},
            )
        if number == tries and self._classes:
            return Stage(epochs, self._with_exemplars(phase), recipe={"lr": self.arm.lr})
        return super()._stage(number - tries, phase, epochs)

    def _trial_loss(self, known: int, forward: Forward, batch: Batch) -> tuple[Tensor, int]:
        return self._batch_loss(forward, batch, known)

    def loss(self, now: Output, before: Output | None, labels: Tensor, known: int) -> Tensor:
        if before is None:
            return functional.cross_entropy(now.logits, labels)
        loss = self._lucir_loss(now, before, labels, self.arm.features * self.strength)
        if not self.arm.logits:
            return loss
        return loss + self.arm.logits * scaled_divergence(now.logits[:, :known], before.logits, self.temperature)

    def _cosine(self) -> CosineHead:
        return cast(CosineHead, (self.network if self._trial is None else self._trial).head)

    def _extra(self) -> dict[str, Tensor]:
        own = {**super()._extra(), "bandit": self._bandit.weights.clone(), "arm": torch.tensor(self._arm)}
        if self._trial is not None:
            own |= {f"trial.{name}": value for name, value in self._trial.state_dict().items()}
        return own

    def _restore_extra(self, extra: dict[str, Tensor]) -> None:
        self._bandit.weights, self._arm = extra["bandit"].cpu(), int(extra["arm"])
        trial = {name.removeprefix("trial."): value for name, value in extra.items() if name.startswith("trial.")}
        if trial:
            self._trial = copy.deepcopy(self.network)
            self._trial.load_state_dict(trial)


def scaled_divergence(logits: Tensor, old: Tensor, temperature: float) -> Tensor:
    """Return T^2 0.25 KL(softmax(old / T) || softmax(o / T)) (Liu et al., AAAI 2023), for logits (n, c) of both."""
    entropy = distillation(old, old, temperature)  # of the target
    return temperature**2 * 0.25 * (distillation(logits, old, temperature) - entropy)
