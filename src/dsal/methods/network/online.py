"""Online hyper-parameter optimisation (Liu et al., AAAI 2023), on LUCIR."""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import NamedTuple, cast

import torch
from torch import Generator, Tensor, nn
from torch.nn import functional

from dsal.errors import InputError
from dsal.files.tensors import flat, under
from dsal.methods.contract import Phase
from dsal.methods.network.kit.exemplars import Split, balanced_split
from dsal.methods.network.kit.growing_network import GrowingNetwork, Output
from dsal.methods.network.kit.heads import CosineHead
from dsal.methods.network.kit.losses import distillation
from dsal.methods.network.kit.part import Part
from dsal.methods.network.kit.stages import Stage
from dsal.methods.network.lucir import LUCIR
from dsal.training.sample import seed_of


class Exp3:
    """Weights of arms, and the probabilities that follow from them.

    Args:
        arms: number of arms, n.
        exploration: eta, the fraction of draws that ignores the weights.
    """

    def __init__(self, arms: int, exploration: float) -> None:
        self.exploration = exploration
        self.weights = torch.ones(arms, dtype=torch.float64)

    @property
    def probabilities(self) -> Tensor:
        """Probabilities of the arms: (1 - eta) w / sum(w) + eta / n, (n,)."""
        uniform = self.exploration / len(self.weights)
        return (1 - self.exploration) * self.weights / self.weights.sum() + uniform

    @property
    def best(self) -> int:
        """The arm with the largest weight; the first one in a tie."""
        return int(self.weights.argmax())

    def draw(self, generator: Generator) -> int:
        """Draw an arm according to the probabilities."""
        return int(self.probabilities.multinomial(1, generator=generator))

    def reward(self, arm: int, value: float) -> None:
        """Multiply the weight of the drawn arm by exp(eta value / (p n)), for a value in [0, 1]."""
        expected = value / float(self.probabilities[arm])
        self.weights[arm] *= math.exp(self.exploration * expected / len(self.weights))
        self.weights /= self.weights.max()


class Arm(NamedTuple):
    """Hyper-parameters of the training of a phase."""

    features: float  # weight of the less-forget term: stability of features
    logits: float  # weight of the distillation of scores: stability of predictions
    lr: float  # learning rate: plasticity


class Trials(Part["OnlineLUCIR"]):
    """The trials before a phase is trained: a bandit, the arm in use, and the copy of the network being tried."""

    def __init__(self, method: OnlineLUCIR) -> None:
        super().__init__(method)
        self.arm = 0
        self.trial: GrowingNetwork | None = None
        self.bandit = Exp3(len(method.arms), method.exploration)

    def begin(self, phase: Phase) -> None:
        self.bandit, self.arm = Exp3(len(self.method.arms), self.method.exploration), 0
        if self.count(phase):
            self._draw(0, phase)

    def count(self, phase: Phase) -> int:
        """Return the number of trials before a phase is trained."""
        options = self.method
        useful = bool(self.method.classes_seen) and len(options.arms) > 1 and options.draw_epochs
        return options.draws if useful and self.split(phase) is not None else 0

    def split(self, phase: Phase) -> Split | None:
        """Return images to try an arm on and to compute its reward on; None if nothing can be held out."""
        seed = seed_of(self.method.seed, 400_000 + phase.index)
        return balanced_split(phase.samples, self.method.exemplars.data, self.method.held_out, seed)

    def _draw(self, number: int, phase: Phase) -> None:
        generator = torch.Generator().manual_seed(seed_of(self.method.seed, 10_000 * phase.index + number))
        self.arm = self.bandit.draw(generator)
        self.trial = copy.deepcopy(self.method.network)

    def begin_stage(self, number: int, phase: Phase) -> None:
        trials, split = self.count(phase), self.split(phase) if self.trial is not None else None
        if split is None or number > trials:
            return
        read = self.method.read(split.held_out, self.trial)
        hits = sum(int((output.logits.argmax(1) == labels).sum()) for _, output, labels in read)
        self.bandit.reward(self.arm, hits / len(split.held_out))
        if number < trials:
            self._draw(number, phase)
        else:
            self.trial, self.arm = None, self.bandit.best

    def state(self) -> dict[str, Tensor]:
        trial = {} if self.trial is None else flat({"trial": self.trial.state_dict()})
        return {"bandit": self.bandit.weights.clone(), "arm": torch.tensor(self.arm), **trial}

    def restore(self, tensors: dict[str, Tensor]) -> None:
        self.bandit.weights, self.arm = tensors["bandit"].cpu(), int(tensors["arm"])
        if weights := under(tensors, "trial"):
            self.trial = copy.deepcopy(self.method.network)
            self.trial.load_state_dict(weights)


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

    parts = (*LUCIR.parts, Trials)

    def __post_init__(self) -> None:
        rates = self.rates or (self.lr,)
        self.arms = [Arm(*values) for values in product(self.feature_weights, self.logit_weights, rates)]
        if not self.arms or min(self.draws, self.draw_epochs) < 0:
            raise InputError("feature_weights and logit_weights must not be empty, draws and draw_epochs 0 or more")
        super().__post_init__()

    @property
    def arm(self) -> Arm:
        """The arm the network is being trained with, or was in the last phase."""
        return self.arms[self.part(Trials).arm]

    def stage(self, number: int, phase: Phase, epochs: int) -> Stage | None:
        trials = self.part(Trials)
        count, split, trial = trials.count(phase), trials.split(phase), trials.trial
        if number < count and split is not None and trial is not None:
            head = self.cosine_head()
            trained = nn.ModuleList([trial.body, nn.ParameterList([head.weights[-1], head.scale])])
            return Stage(
                self.draw_epochs,
                split.training,
                loss=partial(self.batch_loss, known=self.classes_seen),
                module=trial,
                trained=trained,
                recipe={"lr": self.arm.lr},
            )
        if number == count and self.classes_seen:
            return Stage(epochs, self.memory.with_exemplars(phase), recipe={"lr": self.arm.lr})
        return super().stage(number - count, phase, epochs)

    def loss(self, now: Output, before: Output | None, labels: Tensor, known: int) -> Tensor:
        if before is None:
            return functional.cross_entropy(now.logits, labels)
        loss = self._lucir_loss(now, before, labels, self.arm.features * self.strength)
        if not self.arm.logits:
            return loss
        return loss + self.arm.logits * scaled_divergence(now.logits[:, :known], before.logits, self.temperature)

    def cosine_head(self) -> CosineHead:
        trial = self.part(Trials).trial
        return cast(CosineHead, (self.network if trial is None else trial).head)


def scaled_divergence(logits: Tensor, old: Tensor, temperature: float) -> Tensor:
    """Return T^2 0.25 KL(softmax(old / T) || softmax(o / T)) (Liu et al., AAAI 2023), for logits (n, c) of both."""
    entropy = distillation(old, old, temperature)  # of the target
    return temperature**2 * 0.25 * (distillation(logits, old, temperature) - entropy)
