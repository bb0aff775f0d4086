"""A comparison: every method at every K, each a run in a folder of its own, tuned alike and summed up in one file."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from dsal.evaluation.experiment import Experiment, option_hints
from dsal.evaluation.trials import PHASES, Ground, Trial, best, tune
from dsal.methods import METHODS
from dsal.schema import ANY_TABLE, Anything, Each, Record
from dsal.store import atomic_write, read_json

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
    """The runs of a comparison, K by K.

    Args:
        common: what all runs share; its method and K do not matter.
        phases: the values of K.
        chosen: the methods, with the options that tuning chose for each.
        out: folder of the comparison; a run has the folder ``k<K>/<method>`` in it.
    """
    return [
        Entry(replace(run, phases=k, options={**run.options, **chosen[run.method]}), out / f"k{k}" / run.method)
        for k in phases
        for run in (of_method(common, name) for name in chosen)
    ]


def of_method(common: Experiment, name: str) -> Experiment:
    """The experiment with another method: only with options it takes, and one seed where seeds change nothing."""
    taken = option_hints(name)
    options = {option: value for option, value in common.options.items() if option in taken}
    seeds = common.seeds if METHODS.get(name).seed_varies else common.seeds[:1]
    return replace(common, method=name, options=options, seeds=seeds)


def tune_once(experiment: Experiment, ground: Ground, out: Path) -> Iterator[Trial]:
    """Tune the experiment's method and write the outcome to ``tuning.json``; nothing where it is there already."""
    settings = [dict(options) for options in METHODS.get(experiment.method).trials]
    seed = experiment.seeds[0]
    size = getattr(experiment.build_method(seed), "expansion_size", None)
    protocol = {**ground.facts, "phases": PHASES, "seed": seed, "expansion_size": size, "settings": settings}
    known = read_tuning(out)
    if known.get(experiment.method, {}).get("protocol") == protocol:
        return
    trials = []
    for trial in tune(experiment, ground):
        trials.append(trial)
        yield trial
    entry = {"protocol": protocol, "trials": [asdict(t) for t in trials], "chosen": dict(best(trials).options)}
    _write(out / "tuning.json", {**known, experiment.method: entry})


def read_tuning(out: Path) -> dict[str, Any]:
    """What tuning has found so far, by method: ``protocol``, ``trials`` and the options ``chosen``."""
    path = out / "tuning.json"
    found: dict[str, Any] = read_json(path, _TUNING) if path.exists() else {}
    return found


def write_comparison(out: Path, documents: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Write ``comparison.json``: a row for each finished run, how each method was tuned, where it was computed."""
    comparison = {
        "schema": 1,
        "runs": [_row(document) for document in documents],
        "tuning": read_tuning(out),
        "provenance": documents[0]["provenance"],
    }
    _write(out / "comparison.json", comparison)
    return comparison


def _row(document: Mapping[str, Any]) -> dict[str, Any]:
    accuracies = ("average_accuracy", "last_accuracy", "base_accuracy", "new_accuracy", "forgetting")
    costs = ("peak_memory_bytes", "stored_bytes", "exemplar_free")
    return {
        "method": document["method"],
        "phases": document["config"]["phases"],
        "seeds": document["seeds"],
        **{name: document[name] for name in accuracies},
        "seconds": sum(phase["seconds"]["mean"] for phase in document["phases"]),
        **{name: document[name] for name in costs},
        "config": document["config"],
    }


def _write(path: Path, content: Mapping[str, Any]) -> None:
    with atomic_write(path) as temporary:
        temporary.write_text(json.dumps(content, indent=1, allow_nan=False) + "\n", encoding="utf-8")
