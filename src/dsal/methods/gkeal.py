"""GKEAL: Gaussian kernels in place of the random expansion (Zhuang et al., CVPR 2023)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from dsal.errors import InputError
from dsal.methods.analytic import Analytic, Streams
from dsal.methods.contract import Samples


class GKEAL(Analytic):
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
    options = ("expansion_size", "gamma", "width", "seed")
    seed_varies = "the choice of centres"
    trials = tuple(
        {"gamma": gamma, "width": width}
        for gamma, width in ((0.1, 1.0), (0.01, 1.0), (1e-3, 1.0), (1e-4, 1.0), (1e-3, 0.7), (1e-4, 0.7))
    )

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

    def _learn(self, X: Samples, y: NDArray[np.int64], classes: Sequence[int]) -> None:
        expansion = None
        if not self.classes_seen:
            expansion = self._streams.build_expansion(X)
            expansion.get_buffer("width").mul_(self.width)
        self._streams.learn(X, y, classes, expansion)
