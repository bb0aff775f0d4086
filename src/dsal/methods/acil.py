"""ACIL: analytic class-incremental learning (Zhuang et al., NeurIPS 2022), the main stream of DS-AL alone."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from dsal.methods.analytic import Analytic, Streams
from dsal.methods.contract import Samples


class ACIL(Analytic):
    """Recursive ridge regression on a ReLU expansion: equal to joint training, whatever the phases.

    Args:
        expansion: name of the expansion.
        expansion_size: d_B.
        gamma: ridge penalty.
        seed: of the expansion.
    """

    takes_returning_classes = True
    options = ("expansion", "expansion_size", "gamma", "seed")
    seed_varies = "the random expansion"
    trials = tuple({"gamma": value} for value in (0.1, 0.01, 1.0, 10.0, 100.0, 1000.0))

    def __init__(
        self, *, expansion: str = "random", expansion_size: int = 4096, gamma: float = 0.1, seed: int = 0
    ) -> None:
        self.expansion, self.expansion_size, self.gamma, self.seed = expansion, expansion_size, gamma, seed
        self._streams = Streams(**self._options(), gamma_comp=gamma, compensation=0.0, activation="identity")

    def _learn(self, X: Samples, y: NDArray[np.int64], classes: Sequence[int]) -> None:
        self._streams.learn(X, y, classes)
