"""DS-AL: dual-stream analytic learning (Zhuang et al., AAAI 2024)."""

from __future__ import annotations

from dsal.analytic.activations import resolve
from dsal.analytic.learner import Learner
from dsal.analytic.streams import Auto, Compensation
from dsal.analytic.validation import check_compensation
from dsal.base.options import COMPENSATION, EXPANSION_SIZE, GAMMA
from dsal.errors import InputError
from dsal.methods.closed_form.kit.learner_method import Analytic


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

    def __init__(
        self,
        *,
        expansion: str = "random",
        expansion_size: int = EXPANSION_SIZE,
        gamma: float | Auto = GAMMA,
        gamma_comp: float | Auto | None = None,
        compensation: float | Auto = COMPENSATION,
        activation: str = "tanh",
        main_activation: str = "relu",
        cleanse: bool = True,
        seed: int = 0,
    ) -> None:
        if check_compensation(compensation) is None:
            raise InputError('compensation must be a number of 0 or more, or "auto", not None')
        self.expansion, self.expansion_size, self.seed = expansion, expansion_size, seed
        self.gamma, self.gamma_comp = gamma, gamma if gamma_comp is None else gamma_comp
        self.compensation, self.activation = compensation, activation
        self.main_activation, self.cleanse = main_activation, cleanse
        stream = Compensation(resolve(activation), cleanse, self.gamma_comp)
        self._learner = Learner(
            expansion=expansion,
            size=expansion_size,
            seed=seed,
            gamma=gamma,
            main_activation=main_activation,
            compensations=() if compensation == 0 else (stream,),
        )
