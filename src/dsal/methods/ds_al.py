"""DS-AL: dual-stream analytic learning (Zhuang et al., AAAI 2024)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from dsal.methods.analytic import Analytic, Streams
from dsal.methods.contract import Samples


class DSAL(Analytic):
    """A main stream that equals joint ridge regression, and a compensation stream on its residue.

    Args:
        expansion: name of the expansion.
        expansion_size: d_B.
        gamma: ridge of the main stream.
        gamma_comp: ridge of the compensation stream; ``gamma`` by default.
        compensation: C; with 0 this is ACIL.
        activation: sigma_C, of the compensation stream.
        seed: of the expansion.
    """

    takes_returning_classes = True
    options = ("expansion", "expansion_size", "gamma", "gamma_comp", "compensation", "activation", "seed")
    seed_varies = "the random expansion"
    trials = tuple(
        {"compensation": c, "gamma": gamma}
        for c, gamma in ((0.6, 0.1), (0.6, 10.0), (1.0, 10.0), (1.5, 10.0), (1.0, 100.0), (1.5, 100.0))
    )

    def __init__(
        self,
        *,
        expansion: str = "random",
        expansion_size: int = 4096,
        gamma: float = 0.1,
        gamma_comp: float | None = None,
        compensation: float = 0.6,
        activation: str = "tanh",
        seed: int = 0,
    ) -> None:
        self.expansion, self.expansion_size, self.seed = expansion, expansion_size, seed
        self.gamma, self.gamma_comp = gamma, gamma if gamma_comp is None else gamma_comp
        self.compensation, self.activation = compensation, activation
        self._streams = Streams(**self._options())

    def _learn(self, X: Samples, y: NDArray[np.int64], classes: Sequence[int]) -> None:
        self._streams.learn(X, y, classes)
