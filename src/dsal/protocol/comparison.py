"""A comparison: every method at every K, each run in its own folder, tuned alike and summarised in one file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from dsal.files.schema import ANY_TABLE, Anything, Each, Record, read_json, write_json
from dsal.methods import METHODS
from dsal.protocol.experiment import Experiment, option_hints
from dsal.protocol.trials import PHASES, Trial, TuningData, best, tune

_TUNING = Record(
    {}, rest=Record({"protocol": ANY_TABLE, "trials": Each(ANY_TABLE), "chosen": ANY_TABLE}, rest=Anything())
)
Options = Mapping[str, Any]


@dataclass(frozen=True)
class Entry:
    """One run of a comparison, and its folder."""

    experiment: Experiment
    folder: Path


def plan(common: Experiment, phases: Sequence[int], chosen: Mapping[str, Options], out: Path) -> list[Entry]:
    """Return the runs of a comparison, K by K.

    Args:
        common: settings of all runs; its method and K are ignored.
        phases: the values of K.
        chosen: the methods, with the options of each; those under ``k<K>`` apply to that K alone.
        out: folder of the comparison; each run has the subfolder ``k<K>/<method>``.
    """
    return [
        Entry(replace(of_method(common, name, at_phases(options, k)), phases=k), out / f"k{k}" / name)
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
    found: dict[str, Any] = read_json(path, _TUNING) if path.exists() else {}
    return found


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
        "other_readouts": document.get("other_readouts", {}),
        "seconds": sum(phase["seconds"]["mean"] for phase in document["phases"]),
        **{name: document.get(name) for name in costs},
        "config": document["config"],
    }
