"""The alternative without dsal: refit scikit-learn's RidgeClassifier on all rows so far, at every phase.

Expansion and gamma are the same, with the main stream alone, so that both end with the same weights.
"""

from __future__ import annotations

import statistics
from typing import Any

import numpy as np
from benchmarks.speed.contest import GAMMA, load, phase_of, test_rows
from benchmarks.speed.record import Record, seconds
from sklearn.linear_model import RidgeClassifier

from dsal.methods.closed_form.ds_al import ACIL

NAME, MINUTES = "refit", 3
PHASES = 25


def run(small: bool) -> Record:
    """Measure with d_B = 4096: the first, middle and last refit; the others are interpolated."""
    size = 128 if small else 4096
    data = load(small)
    method = ACIL(expansion_size=size, gamma=GAMMA)
    step = 50 // PHASES
    taken: list[float] = []
    refits: dict[int, float] = {}
    agreement = 0.0
    for k in range(PHASES + 1):
        phase = phase_of(data, range(50) if k == 0 else range(50 + (k - 1) * step, 50 + k * step))
        taken.append(seconds(lambda phase=phase: (method.learn_rows(*phase), method.scores(phase.x[:1]))))
        if k in (0, PHASES // 2, PHASES):
            everything = phase_of(data, range(50 + k * step))
            projection = method._learner.built().projection.numpy()
            ridge = RidgeClassifier(alpha=GAMMA, fit_intercept=False, solver="cholesky", copy_X=False)

            def refit(ridge: Any = ridge, everything: Any = everything, projection: Any = projection) -> None:
                ridge.fit(np.maximum(everything.x.astype(np.float64) @ projection, 0.0), everything.y)

            refits[k] = seconds(refit)
            x, _ = test_rows(data, 50 + k * step)
            theirs = ridge.predict(np.maximum(x.astype(np.float64) @ projection, 0.0))
            agreement = float((method.predict(x) == theirs).mean())
    total = float(np.interp(range(PHASES + 1), list(refits), list(refits.values())).sum())
    record = Record(
        NAME,
        f"A run of base and {PHASES} phases against refitting at each, d_B = {size}, main stream, CIFAR-100 features",
        ("", "base s", "last phase s", "run s", "x ours"),
        _plot,
        raw={"ours": taken, "refit": refits, "agreement": agreement},
    )
    record.rows = [
        ["ours", taken[0], statistics.median(taken[1:]), sum(taken), 1.0],
        ["RidgeClassifier on all rows", refits[0], refits[PHASES], total, total / sum(taken)],
    ]
    record.notes = [
        "Refits were measured in phases 0, 12 and 25; those between are interpolated.",
        f"The last two models agree on {100 * agreement:.2f}% of the test samples (+-1 targets and 0-1 targets).",
    ]
    return record


def _plot(record: Record, axes: Any) -> None:
    axes.plot(record.raw["ours"], "o-", markersize=3, label="ours")
    axes.plot(list(record.raw["refit"]), list(record.raw["refit"].values()), "s--", label="RidgeClassifier, all rows")
    axes.set(xlabel="phase", ylabel="seconds", yscale="log")
    axes.legend()
