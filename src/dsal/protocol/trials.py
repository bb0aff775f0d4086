"""The same tuning budget for every method: a few settings each, tried without test data or later classes.

A trial is a small class-incremental run on one of two kinds of data, the same for all methods:

- phase 0 itself: half of the base classes first, the others in a few phases, a fifth of each class's training samples
  held out to test on. Always available, but the backbone was trained on these very samples, so their features are
  cleaner than those of later classes.
- a proxy: features of a backbone that was trained on a part of the base classes and without some samples, which are
  its test samples. It costs another base training, but is like the real task.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from dsal.data import Samples, Scenario
from dsal.data.features.feature_set import FeatureSet
from dsal.methods import METHODS
from dsal.protocol.experiment import Experiment, Setting
from dsal.protocol.leak import check_no_leak
from dsal.protocol.metrics import average_accuracy
from dsal.protocol.phases import PhaseResult, TrainTestData, run_phases

BUDGET = 6
"""Maximum number of settings that a method may try; one with fewer has no more to choose from."""
PHASES = 5
HELD_OUT = 0.2


@dataclass(frozen=True)
class Trial:
    """A setting, and its average accuracy in percent on the held-out samples."""

    options: Mapping[str, Any]
    accuracy: float


@dataclass(frozen=True)
class Parts:
    """Training and test samples."""

    train: Samples
    test: Samples


@dataclass(frozen=True)
class TuningData:
    """Samples and phases for trials, and facts to record about them."""

    samples: TrainTestData
    scenario: Scenario
    facts: Mapping[str, Any]


def tune(experiment: Experiment, data: TuningData) -> Iterator[Trial]:
    """Yield a trial of every setting of the experiment's method, with its first seed."""
    for options in METHODS.get(experiment.method).trials:
        method = replace(experiment, options={**experiment.options, **options}).build_method(experiment.seeds[0])
        results = run_phases(method, data.samples, data.scenario, confusions=0)
        tallies = [result.tally for result in results if isinstance(result, PhaseResult)]
        yield Trial(dict(options), average_accuracy(tallies))


def best(trials: list[Trial]) -> Trial:
    """Return the most accurate trial; the first one of a tie, so that defaults win."""
    return max(trials, key=lambda trial: trial.accuracy)


def base_tuning_data(setting: Setting) -> TuningData:
    """Return the training samples of phase 0, a fifth of each class held out (at least one sample if there are two)."""
    data, scenario = setting.data, setting.scenario
    rows = torch.from_numpy(scenario.phase_rows(data.train.labels, 0))
    base = data.train.take(rows)
    labels = scenario.positions(base.labels)
    random = np.random.RandomState(0)
    held = np.zeros(len(rows), dtype=bool)
    for position in scenario.phases[0]:
        own = random.permutation(np.flatnonzero(labels == position))
        held[own[: max(round(HELD_OUT * len(own)), 1)]] = len(own) > 1
    base = base.relabel(torch.from_numpy(labels))
    samples = Parts(*(base.take(torch.from_numpy(np.flatnonzero(part))) for part in (~held, held)))
    inner = Scenario.deal(scenario.seen(0), phases=min(PHASES, scenario.seen(0) // 2))
    facts = {"class_order": setting.experiment.class_order, "base_classes": scenario.seen(0), "held_out": HELD_OUT}
    return TuningData(samples, inner, {"ground": "phase 0", "data_sha256": data.fingerprint, **facts})


def proxy_tuning_data(data: FeatureSet) -> TuningData:
    """Return a proxy: first the classes its backbone has seen, then the others of the file.

    Raises:
        LeakError: the backbone has seen classes other than the first ones of the file.
    """
    seen, classes = data.backbone.get("seen_classes"), len(data.class_names)
    base = (classes + 1) // 2 if seen is None else len(seen)
    scenario = Scenario.deal(classes, base=base, phases=min(PHASES, classes - base))
    check_no_leak(data.backbone, scenario, data.dataset)
    return TuningData(data, scenario, {"ground": "proxy", "data_sha256": data.fingerprint, "base_classes": base})
