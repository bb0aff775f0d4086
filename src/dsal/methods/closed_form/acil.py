"""ACIL: analytic class-incremental learning (Zhuang et al., NeurIPS 2022), the main stream of DS-AL alone."""

from __future__ import annotations

from dsal.analytic.learner import Learner
from dsal.analytic.streams import Auto
from dsal.base.options import EXPANSION_SIZE, GAMMA
from dsal.methods.closed_form.kit.learner_method import Analytic


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

    def __init__(
        self,
        *,
        expansion: str = "random",
        expansion_size: int = EXPANSION_SIZE,
        gamma: float | Auto = GAMMA,
        seed: int = 0,
    ) -> None:
        self.expansion, self.expansion_size, self.gamma, self.seed = expansion, expansion_size, gamma, seed
        self._learner = Learner(expansion=expansion, size=expansion_size, seed=seed, gamma=gamma, compensations=())
