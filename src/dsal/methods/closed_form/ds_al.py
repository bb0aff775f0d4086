"""DS-AL: dual-stream analytic learning (Zhuang et al., AAAI 2024), and ACIL, its main stream alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from dsal.analytic.activations import resolve
from dsal.analytic.learner import Learner
from dsal.analytic.leave_one_out import review
from dsal.analytic.rows import PhaseRows, from_arrays, pick
from dsal.analytic.streams import Auto, Compensation, check_compensation, is_auto
from dsal.analytic.tuning import RATIO_ROWS
from dsal.base.options import COMPENSATION, EXPANSION_SIZE, GAMMA
from dsal.errors import InputError
from dsal.methods.closed_form.kit.feature_method import FeatureMethod, Features
from dsal.methods.contract import State

Self = TypeVar("Self", bound="Analytic")


class Analytic(FeatureMethod):
    """A method that wraps a learner, which the subclass constructor creates."""

    takes_returning_classes = True
    streams = True
    _learner: Learner
    compensation: float | Auto = 0.0

    @property
    def exemplar_free(self) -> bool:
        return self._learner.exemplar_free

    @property
    def classes_seen(self) -> int:
        return self._learner.classes

    def _learn(self, X: Features, y: NDArray[np.int64], classes: Sequence[int]) -> None:
        learner = self._learner
        learner.team = self.team
        device = learner.backend.device
        seen = max(learner.classes, classes[-1] + 1)
        phase = PhaseRows(from_arrays(X, y, device), len(X), torch.tensor(list(classes), device=device), seen)
        with learner.rollback():
            learner.learn(phase)
            if is_auto(self.compensation):
                sample = pick(phase.read, RATIO_ROWS, learner.seed, device)
                review(learner, sample, phase.present, float(len(X)), self.compensation)

    def _scores(self, X: Features) -> NDArray[np.float64]:
        return self._learner.logits(X, self._learner.strength(self.compensation))

    def _predict(self, X: Features) -> NDArray[np.int64]:
        return self._learner.predict(X, self._learner.strength(self.compensation))

    def state(self) -> State:
        return State(self._learner.state(), {**self.options(), "learned": self._learner.facts()})

    @classmethod
    def from_state(cls: type[Self], state: State) -> Self:
        method = cls.with_options({name: value for name, value in state.facts.items() if name != "learned"})
        method._learner.restore(state.arrays, state.facts["learned"])
        return method


@dataclass(kw_only=True, eq=False)
class ACIL(Analytic):
    """Recursive ridge regression on a ReLU expansion, equal to joint training for any split into phases.

    Args:
        expansion: name of the expansion.
        expansion_size: d_B.
        gamma: ridge penalty; ``"auto"`` chooses it in phase 0 by predictions for left-out rows.
        seed: seed of the expansion.
    """

    name = "acil"
    title = "ACIL"

    seed_varies = "the random expansion"
    trials = tuple({"gamma": value} for value in (0.1, 0.01, 1.0, 10.0, 100.0, 1000.0))

    expansion: str = "random"
    expansion_size: int = EXPANSION_SIZE
    gamma: float | Auto = GAMMA
    seed: int = 0

    def __post_init__(self) -> None:
        self._learner = Learner(
            expansion=self.expansion, size=self.expansion_size, seed=self.seed, gamma=self.gamma, compensations=()
        )


@dataclass(kw_only=True, eq=False)
class DSAL(Analytic):
    """A main stream that equals joint ridge regression, and a compensation stream on its residue.

    Args:
        expansion: name of the expansion.
        expansion_size: d_B.
        gamma: ridge of the main stream; ``"auto"`` chooses it in phase 0 by predictions for left-out rows.
        gamma_comp: ridge of the compensation stream; ``gamma`` by default; ``"auto"`` chooses it likewise.
        compensation: C; with 0 this is ACIL; ``"auto"`` follows the leave-one-out errors of the phases.
        activation: sigma_C, of the compensation stream.
        main_activation: sigma_M, of the main stream.
        cleanse: whether to apply previous label cleansing (PLC).
        seed: seed of the expansion.
    """

    name = "ds-al"
    title = "DS-AL"

    seed_varies = "the random expansion"
    trials = tuple(
        {"compensation": c, "gamma": gamma}
        for c, gamma in ((0.6, 0.1), (0.6, 10.0), (1.0, 10.0), (1.5, 10.0), (1.0, 100.0), (1.5, 100.0))
    )

    expansion: str = "random"
    expansion_size: int = EXPANSION_SIZE
    gamma: float | Auto = GAMMA
    gamma_comp: float | Auto | None = None
    compensation: float | Auto = COMPENSATION
    activation: str = "tanh"
    main_activation: str = "relu"
    cleanse: bool = True
    seed: int = 0

    def __post_init__(self) -> None:
        if check_compensation(self.compensation) is None:
            raise InputError('compensation must be a number of 0 or more, or "auto", not None')
        self.gamma_comp = self.gamma if self.gamma_comp is None else self.gamma_comp
        stream = Compensation(resolve(self.activation), self.cleanse, self.gamma_comp)
        self._learner = Learner(
            expansion=self.expansion,
            size=self.expansion_size,
            seed=self.seed,
            gamma=self.gamma,
            main_activation=self.main_activation,
            compensations=() if self.compensation == 0 else (stream,),
        )
