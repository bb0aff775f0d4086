"""A comparison: every method at every K, each run in its own folder, tuned alike and summarised in one file.

All methods have the same tuning budget: a few settings each, tried without test data or later classes. A trial is a
small class-incremental run on one of two kinds of data, the same for all methods:

- phase 0 itself: half of the base classes first, the others in a few phases, a fifth of each class's training samples
  held out to test on. Always available, but the backbone was trained on these very samples, so their features are
  cleaner than those of later classes.
- a proxy: features of a backbone that was trained on a part of the base classes and without some samples, which are
  its test samples. It costs another base training, but is like the real task.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from dsal.data import Samples, Scenario
from dsal.data.features.feature_set import FeatureSet
from dsal.files.schema import ANY_TABLE, Anything, Each, Record, read_json, write_json
from dsal.methods import METHODS
from dsal.protocol.experiment import Experiment, Setting, option_hints
from dsal.protocol.metrics import average_accuracy
from dsal.protocol.phases import PhaseResult, TrainTestData, run_phases
from dsal.protocol.provenance import check_no_leak

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


_TUNING = Record(
    {}, rest=Record({"protocol": ANY_TABLE, "trials": Each(ANY_TABLE), "chosen": ANY_TABLE}, rest=Anything())
)
Options = Mapping[str, Any]


@dataclass(frozen=True)
class PlannedRun:
    """One run of a comparison, and its folder."""

    experiment: Experiment
    folder: Path


def plan(common: Experiment, phases: Sequence[int], chosen: Mapping[str, Options], out: Path) -> list[PlannedRun]:
    """Return the runs of a comparison, K by K.

    Args:
        common: settings of all runs; its method and K are ignored.
        phases: the values of K.
        chosen: the methods, with the options of each; those under ``k<K>`` apply to that K alone.
        out: folder of the comparison; each run has the subfolder ``k<K>/<method>``.
    """
    return [
        PlannedRun(replace(of_method(common, name, at_phases(options, k)), phases=k), out / f"k{k}" / name)
        for k in phases
        for name, options in chosen.items()
    ]


def at_phases(options: Options, k: int | None = None) -> Options:
    """Return the options of a method at K; for None, those that do not depend on K.

    >>> at_phases({"lr": 0.1, "epochs": 9, "k25": {"lr": 0.2}}, 25)
    {'lr': 0.2, 'epochs': 9}
    """
    always = {name: value for name, value in options.items() if not isinstance(value, Mapping)}
    return {**always, **options.get(f"k{k}", {})}


def method_options(name: str, shared: Options, own: Mapping[str, Options]) -> Options:
    """Return the options of a method in a comparison: the shared ones that it accepts, overridden by its own.

    Args:
        name: of the method.
        shared: options for all methods.
        own: options of individual methods, by name.
    """
    taken = option_hints(name)
    return {**{option: value for option, value in shared.items() if option in taken}, **own.get(name, {})}


def of_method(common: Experiment, name: str, own: Options) -> Experiment:
    """Return the experiment with another method: only options it accepts, and one seed if seeds change nothing."""
    taken = option_hints(name)
    options = {**{option: value for option, value in common.options.items() if option in taken}, **own}
    seeds = common.seeds if METHODS.get(name).seed_varies else common.seeds[:1]
    return replace(common, method=name, options=options, seeds=seeds)


def tune_once(experiment: Experiment, data: TuningData, out: Path) -> Iterator[Trial]:
    """Tune the experiment's method, yield the trials and write ``tuning.json``; do nothing if that is already done."""
    settings = [dict(options) for options in METHODS.get(experiment.method).trials]
    seed = experiment.seeds[0]
    size = getattr(experiment.build_method(seed), "expansion_size", None)
    protocol = {**data.facts, "phases": PHASES, "seed": seed, "expansion_size": size, "settings": settings}
    known = read_tuning(out)
    if known.get(experiment.method, {}).get("protocol") == protocol:
        return
    trials = []
    for trial in tune(experiment, data):
        trials.append(trial)
        yield trial
    entry = {"protocol": protocol, "trials": [asdict(t) for t in trials], "chosen": dict(best(trials).options)}
    write_json(out / "tuning.json", {**known, experiment.method: entry})


def read_tuning(out: Path) -> dict[str, Any]:
    """Return the tuning results so far, by method: ``protocol``, ``trials`` and the options ``chosen``."""
    path = out / "tuning.json"
    return read_json(path, _TUNING) if path.exists() else {}


def write_comparison(out: Path, documents: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Write ``comparison.json``: one row per finished run, how each method was tuned, and where it was computed."""
    comparison = {
        "schema": 1,
        "runs": [_row(document) for document in documents],
        "tuning": read_tuning(out),
        "provenance": documents[0]["provenance"],
    }
    write_json(out / "comparison.json", comparison)
    return comparison


def _row(document: Mapping[str, Any]) -> dict[str, Any]:
    accuracies = ("average_accuracy", "last_accuracy", "base_accuracy", "new_accuracy", "forgetting")
    costs = ("peak_memory_bytes", "stored_bytes", "stored_samples", "trained_parameters", "exemplar_free")
    return {
        "method": document["method"],
        "phases": document["config"]["phases"],
        "seeds": document["seeds"],
        **{name: document[name] for name in accuracies},
        "other_readouts": document["other_readouts"],
        "seconds": sum(phase["seconds"]["mean"] for phase in document["phases"]),
        **{name: document[name] for name in costs},
        "config": document["config"],
    }
