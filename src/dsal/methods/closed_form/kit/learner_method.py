"""The base class of DS-AL, ACIL and GKEAL: the paper's learner behind the method interface."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from dsal.analytic.learner import Learner
from dsal.analytic.leave_one_out import review
from dsal.analytic.rows import PhaseRows, from_arrays, pick
from dsal.analytic.streams import Auto
from dsal.analytic.tuning import RATIO_ROWS
from dsal.analytic.validation import is_auto
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
