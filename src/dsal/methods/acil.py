"""ACIL: analytic class-incremental learning (Zhuang et al., NeurIPS 2022), the main stream of DS-AL alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dsal.methods.analytic import Streams
from dsal.methods.contract import Method, Samples, State


class ACIL(Method):
    """Recursive ridge regression on a ReLU expansion: equal to joint training, whatever the phases.

    Args:
        expansion: name of the expansion.
        expansion_size: d_B.
        gamma: ridge penalty.
        seed: of the expansion.
    """

    takes_returning_classes = True
    seed_varies = "the random expansion"
    trials = tuple({"gamma": value} for value in (0.1, 0.01, 1.0, 10.0, 100.0, 1000.0))

    def __init__(
        self, *, expansion: str = "random", expansion_size: int = 4096, gamma: float = 0.1, seed: int = 0
    ) -> None:
        self.expansion, self.expansion_size, self.gamma, self.seed = expansion, expansion_size, gamma, seed
        self._streams = Streams(**self._options(), gamma_comp=gamma, compensation=0.0, activation="identity")

    @property
    def exemplar_free(self) -> bool:
        return self._streams.exemplar_free

    @property
    def classes_seen(self) -> int:
        return self._streams.classes_seen

    def _learn(self, X: Samples, y: NDArray[np.int64], classes: Sequence[int]) -> None:
        self._streams.learn(X, y, classes)

    def scores(self, X: Samples) -> NDArray[np.float64]:
        return self._streams.scores(X)

    def state(self) -> State:
        return State(self._streams.arrays(), self._options())

    @classmethod
    def from_state(cls, state: State) -> ACIL:
        method = cls(**state.facts)
        method._streams.restore(state.arrays)
        return method

    def _options(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in ("expansion", "expansion_size", "gamma", "seed")}
