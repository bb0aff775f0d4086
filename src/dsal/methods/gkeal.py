"""GKEAL: Gaussian kernels in place of the random expansion (Zhuang et al., CVPR 2023)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dsal.errors import InputError
from dsal.methods.analytic import Streams
from dsal.methods.contract import Method, Samples, State


class GKEAL(Method):
    """Recursive ridge regression on exp(-|x - c_j|^2 / (2 width^2)), the centres c_j drawn from phase 0.

    Made for few-shot phases: with many base samples and phases of a handful of samples a class, the kernels are fixed
    by the base, and each phase costs as much as it has rows. (The paper's augmentation of few-shot images lies before
    the features.) The centres are feature vectors of real samples, so this method is not free of exemplars.

    Args:
        expansion_size: number of centres; phase 0 needs as many different samples.
        gamma: ridge penalty.
        width: in units of the median distance between centres, which follows the scale of the features.
        seed: of the choice of centres.
    """

    takes_returning_classes = True
    seed_varies = "the choice of centres"
    trials = tuple({"gamma": gamma, "width": width} for width in (1.0, 1.5) for gamma in (0.1, 0.01, 0.001))

    def __init__(self, *, expansion_size: int = 4096, gamma: float = 0.1, width: float = 1.0, seed: int = 0) -> None:
        if width <= 0.0:
            raise InputError(f"width must be above 0, got {width}")
        self.expansion_size, self.gamma, self.width, self.seed = expansion_size, gamma, width, seed
        self._streams = Streams(
            expansion="gaussian",
            expansion_size=expansion_size,
            gamma=gamma,
            gamma_comp=gamma,
            compensation=0.0,
            activation="identity",
            seed=seed,
        )

    @property
    def exemplar_free(self) -> bool:
        return self._streams.exemplar_free

    @property
    def classes_seen(self) -> int:
        return self._streams.classes_seen

    def _learn(self, X: Samples, y: NDArray[np.int64], classes: Sequence[int]) -> None:
        expansion = None
        if not self.classes_seen:
            expansion = self._streams.build_expansion(X)
            expansion.get_buffer("width").mul_(self.width)
        self._streams.learn(X, y, classes, expansion)

    def scores(self, X: Samples) -> NDArray[np.float64]:
        return self._streams.scores(X)

    def state(self) -> State:
        return State(self._streams.arrays(), self._options())

    @classmethod
    def from_state(cls, state: State) -> GKEAL:
        method = cls(**state.facts)
        method._streams.restore(state.arrays)
        return method

    def _options(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in ("expansion_size", "gamma", "width", "seed")}
