"""GKEAL: Gaussian kernels in place of the random expansion (Zhuang et al., CVPR 2023)."""

from __future__ import annotations

from dataclasses import dataclass

from dsal.analytic.learner import Learner
from dsal.analytic.streams import Auto
from dsal.base.options import EXPANSION_SIZE, GAMMA
from dsal.errors import InputError
from dsal.methods.closed_form.ds_al import Analytic


@dataclass(kw_only=True, eq=False)
class GKEAL(Analytic):
    """Recursive ridge regression on exp(-|x - c_j|^2 / (2 width^2)), with the centres c_j drawn from phase 0.

    Designed for few-shot phases: with many base samples and phases of a handful of samples per class, the base fixes
    the kernels, and the cost of a phase follows its number of rows. (The paper's augmentation of few-shot images comes
    before the features.) The centres are feature vectors of real samples, so this method is not exemplar-free.

    Args:
        expansion_size: number of centres; phase 0 needs as many different samples.
        gamma: ridge penalty.
        width: width in units of the median distance between centres, which follows the scale of the features.
        seed: seed of the choice of centres.
    """

    name = "gkeal"
    title = "GKEAL"

    seed_varies = "the choice of centres"
    trials = tuple(
        {"gamma": gamma, "width": width}
        for gamma, width in ((0.1, 1.0), (0.01, 1.0), (1e-3, 1.0), (1e-4, 1.0), (1e-3, 0.7), (1e-4, 0.7))
    )

    expansion_size: int = EXPANSION_SIZE
    gamma: float | Auto = GAMMA
    width: float = 1.0
    seed: int = 0

    def __post_init__(self) -> None:
        if self.width <= 0.0:
            raise InputError(f"width must be above 0, got {self.width}")
        self._learner = Learner(
            expansion="gaussian",
            expansion_options={"width": self.width},
            size=self.expansion_size,
            seed=self.seed,
            gamma=self.gamma,
            compensations=(),
        )
