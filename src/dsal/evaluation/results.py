"""What a run leaves behind: ``results.json``, ``phases.csv`` and ``confusion.npz``.

The schema is described in docs/results.md. The same run gives the same files to the last byte, except for what
:func:`comparable` takes away.
"""

from __future__ import annotations

import copy
import csv
import json
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from dsal.errors import FileFormatError
from dsal.evaluation import metrics
from dsal.evaluation.experiment import Setting
from dsal.evaluation.protocol import PhaseResult
from dsal.evaluation.provenance import peak_memory_bytes
from dsal.store import atomic_write

SCHEMA = 1

BySeed = Mapping[int, Sequence[PhaseResult]]


def build_results(setting: Setting, results: BySeed, provenance: dict[str, Any], stored_bytes: int) -> dict[str, Any]:
    """The document of a finished run, as JSON holds it."""
    tested = [result.phase for result in next(iter(results.values()))]
    groups = [range(*ends) for ends in pairwise([0, *(setting.scenario.seen(k) for k in tested)])]
    base = groups[0]
    counts = [[result.counts for result in of_seed] for of_seed in results.values()]
    last = [of_seed[-1] for of_seed in counts]
    method = setting.experiment.build_method(setting.experiment.seeds[0])
    return {
        "schema": SCHEMA,
        "method": setting.experiment.method,
        "exemplar_free": method.exemplar_free,
        "config": setting.config,
        "seeds": list(results),
        "seed_varies": method.seed_varies or "nothing",
        "class_names": [setting.data.class_names[label] for label in setting.scenario.order],
        "phases": [
            _phase(group, base, by_seed)
            for group, by_seed in zip(groups, zip(*results.values(), strict=True), strict=True)
        ],
        "average_accuracy": _spread([metrics.average_accuracy(c) for c in counts]),
        "last_accuracy": _spread([metrics.accuracy(c) for c in last]),
        "base_accuracy": _spread([metrics.base_accuracy(c, base) for c in last]),
        "new_accuracy": _spread([metrics.new_accuracy(c, base) for c in last]),
        "forgetting": _spread([metrics.forgetting(c, groups) for c in counts]),
        "backward_transfer": _spread([metrics.backward_transfer(c, groups) for c in counts]),
        "stored_bytes": stored_bytes,
        "peak_memory_bytes": peak_memory_bytes(),
        "provenance": provenance,
    }


def write_results(
    out: Path, setting: Setting, results: BySeed, provenance: dict[str, Any], stored_bytes: int
) -> dict[str, Any]:
    """Write all files of a finished run, ``results.json`` last, each whole or not at all."""
    document = build_results(setting, results, provenance, stored_bytes)
    arrays: dict[str, Any] = {f"seed{s}_phase{r.phase}": r.counts for s in results for r in results[s]}
    with atomic_write(out / "confusion.npz") as temporary, temporary.open("wb") as file:
        np.savez_compressed(file, **arrays)
    with atomic_write(out / "phases.csv") as temporary, temporary.open("w", encoding="utf-8", newline="") as text:
        csv.writer(text, lineterminator="\n").writerows(_table(document))
    with atomic_write(out / "results.json") as temporary:
        temporary.write_text(json.dumps(document, indent=1, allow_nan=False) + "\n", encoding="utf-8")
    return document


def read_results(out: Path) -> dict[str, Any]:
    """The document of a finished run.

    Raises:
        FileFormatError: it is torn, or of another schema.
    """
    path = out / "results.json"
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise FileFormatError(f"{path} is torn or not JSON: {error}") from error
    if not isinstance(document, dict) or document.get("schema") != SCHEMA:
        raise FileFormatError(f"{path} is not a result of schema {SCHEMA}")
    return document


def comparable(document: Mapping[str, Any]) -> dict[str, Any]:
    """The document without what no two runs share: times, the peak of memory, the moment of the start."""
    same = copy.deepcopy(dict(document))
    for phase in same["phases"]:
        del phase["seconds"], phase["seconds_evaluate"]
    del same["peak_memory_bytes"], same["provenance"]["started"]
    return same


def _phase(group: range, base: range, by_seed: Sequence[PhaseResult]) -> dict[str, Any]:
    counts = [result.counts for result in by_seed]
    return {
        "phase": by_seed[0].phase,
        "classes_seen": group.stop,
        "new_classes": list(group),
        "accuracy": _spread([metrics.accuracy(c) for c in counts]),
        "accuracy_base": _spread([metrics.base_accuracy(c, base) for c in counts]),
        "accuracy_new": _spread([metrics.new_accuracy(c, base) for c in counts]),
        "seconds": _spread([result.learn_seconds for result in by_seed]),
        "seconds_evaluate": _spread([result.evaluate_seconds for result in by_seed]),
    }


def _spread(values: Sequence[float | None]) -> dict[str, Any] | None:
    """Mean and sample standard deviation over seeds (0 where there is one seed); None where there is no value."""
    known = [value for value in values if value is not None]
    if not known:
        return None
    std = float(np.std(known, ddof=1)) if len(known) > 1 else 0.0
    return {"mean": float(np.mean(known)), "std": std, "values": known}


def _table(document: Mapping[str, Any]) -> list[list[Any]]:
    """One row for each seed and phase."""
    names = ("accuracy", "accuracy_base", "accuracy_new", "seconds", "seconds_evaluate")
    rows: list[list[Any]] = [["seed", "phase", "classes_seen", *names]]
    for number, seed in enumerate(document["seeds"]):
        for phase in document["phases"]:
            cells = [None if phase[name] is None else phase[name]["values"][number] for name in names]
            rows.append([seed, phase["phase"], phase["classes_seen"], *cells])
    return rows
