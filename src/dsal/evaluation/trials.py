"""The same budget of tuning for every method: a few settings each, tried on held-out samples of phase 0.

A trial is a small class-incremental run inside phase 0: half of the base classes first, the others in a few phases,
a fifth of each class's training samples held out to test on. Neither test data nor classes of later phases take part.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dsal.data import Scenario
from dsal.evaluation.experiment import Setting
from dsal.evaluation.metrics import average_accuracy
from dsal.evaluation.protocol import Split, run_phases
from dsal.methods import METHODS

BUDGET = 6
"""No method may try more settings; one with fewer has no more to choose from."""
PHASES = 5
HELD_OUT = 0.2


@dataclass(frozen=True)
class Trial:
    """A setting, and its average accuracy in percent on the held-out samples."""

    options: Mapping[str, Any]
    accuracy: float


@dataclass(frozen=True)
class BaseSplit:
    """Samples of phase 0, with positions for labels."""

    train_x: NDArray[Any]
    train_y: NDArray[np.int64]
    test_x: NDArray[Any]
    test_y: NDArray[np.int64]


def tune(setting: Setting) -> Iterator[Trial]:
    """Try every setting of the experiment's method with its first seed; the best of the results wins."""
    experiment = setting.experiment
    split, scenario = hold_out(setting.data, setting.scenario)
    for options in METHODS.get(experiment.method).trials:
        method = replace(experiment, method_options=options).build_method(experiment.seeds[0])
        counts = [result.counts for result in run_phases(method, split, scenario)]
        yield Trial(dict(options), average_accuracy(counts))


def hold_out(data: Split, scenario: Scenario) -> tuple[BaseSplit, Scenario]:
    """The training samples of phase 0 in two parts, and the scenario of the trials over its classes.

    Of every class, the same fifth is held out whatever the method (at least one sample, where there are two).
    """
    rows = scenario.phase_rows(data.train_y, 0)
    labels = scenario.positions(data.train_y)[rows]
    random = np.random.RandomState(0)
    held = np.zeros(len(rows), dtype=bool)
    for position in scenario.phases[0]:
        own = random.permutation(np.flatnonzero(labels == position))
        held[own[: max(round(HELD_OUT * len(own)), 1)]] = len(own) > 1
    base = len(scenario.phases[0])
    split = BaseSplit(data.train_x[rows[~held]], labels[~held], data.train_x[rows[held]], labels[held])
    return split, Scenario.deal(base, phases=min(PHASES, base // 2))


def best(trials: list[Trial]) -> Trial:
    """The most accurate one; of equals the first, so that defaults win."""
    return max(trials, key=lambda trial: trial.accuracy)
