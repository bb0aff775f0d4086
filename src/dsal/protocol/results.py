"""The output files of a run: ``results.json``, ``phases.csv`` and ``confusion.npz``.

The schema is described in docs/results.md. The same run gives byte-identical files, except for times, peak memory and
the time of start.
"""

from __future__ import annotations

import csv
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dsal.errors import FileFormatError
from dsal.files.atomic import atomic_write, check_readable
from dsal.files.schema import (
    Anything,
    Array,
    Choice,
    Each,
    Flag,
    Maybe,
    Mismatch,
    Number,
    Record,
    Ruled,
    Text,
    check_headers,
    read_json,
    write_json,
)  # fmt: skip
from dsal.methods import METHODS
from dsal.protocol import metrics
from dsal.protocol.experiment import Setting
from dsal.protocol.metrics import KEPT, spread_out
from dsal.protocol.phases import PhaseResult, other_readouts
from dsal.protocol.provenance import peak_memory_bytes
from dsal.protocol.run_checkpoint import Kept

SCHEMA = 1
CURVES = ("accuracy", "accuracy_base", "accuracy_new", "seconds", "seconds_evaluate")
"""What a results document has for every phase and seed."""

_WHOLE = Number(0, 2**60, whole=True)
_CLASSES = 100_000


def _over_seeds(low: float, high: float) -> Record:
    value = Number(low, high)
    return Record({"mean": value, "std": Number(0, high - low), "values": Each(value, 1)})


_ACCURACY, _CHANGE, _SECONDS = _over_seeds(0, 100), _over_seeds(-100, 100), _over_seeds(0, 1e9)
_ACCURACIES = {
    "average_accuracy": _ACCURACY,
    "last_accuracy": _ACCURACY,
    "base_accuracy": _ACCURACY,
    "new_accuracy": Maybe(_ACCURACY),
}
_PHASE = Record(
    {
        "phase": _WHOLE,
        "new_classes": Each(_WHOLE, most=_CLASSES),
        "classes_seen": Number(1, _CLASSES, whole=True),
        "accuracy": _ACCURACY,
        "accuracy_base": _ACCURACY,
        "accuracy_new": Maybe(_ACCURACY),
        "seconds": _SECONDS,
        "seconds_evaluate": _SECONDS,
    }
)


def _disagreement(document: dict[str, Any]) -> str | None:
    """Return what is inconsistent in a results document, or None."""
    numbers = [phase["phase"] for phase in document["phases"]]
    seen = [phase["classes_seen"] for phase in document["phases"]]
    if numbers[0] != 0 or numbers != sorted(set(numbers)) or seen != sorted(seen):
        return "numbers of phases do not increase from 0, or the number of classes seen decreases"
    if len(document["class_names"]) < seen[-1]:
        return f"{len(document['class_names'])} class names for {seen[-1]} classes"
    return None


DOCUMENT = Ruled(
    Record(
        {
            "schema": Choice((SCHEMA,)),
            "method": Text(200),
            "exemplar_free": Flag(),
            "config": Record({"dataset": Text()}, rest=Anything()),
            "seeds": Each(Number(-(2**63), 2**64, whole=True), 1, 10_000),
            "seed_varies": Text(),
            "class_names": Each(Text(500), 1, _CLASSES),
            "phases": Each(_PHASE, 1, _CLASSES),
            **_ACCURACIES,
            "forgetting": Maybe(_CHANGE),
            "backward_transfer": Maybe(_CHANGE),
            "stored_bytes": _WHOLE,
            "stored_samples": Maybe(_WHOLE),
            "trained_parameters": Maybe(_WHOLE),
            "other_readouts": Record({}, rest=Record(_ACCURACIES)),
            "peak_memory_bytes": _WHOLE,
            "provenance": Record(
                {},
                optional={
                    "image_dataset": Maybe(Text()),
                    "backbone": Maybe(Record({}, optional={"architecture": Text()}, rest=Anything())),
                    "backbone_trained_on": Text(),
                },
                rest=Anything(),
            ),
        },
        rest=Anything(),
    ),
    _disagreement,
)
"""Schema of ``results.json``; see docs/results.md."""

BySeed = Mapping[int, Sequence[PhaseResult]]


def build_results(setting: Setting, results: BySeed, provenance: dict[str, Any], kept: Kept) -> dict[str, Any]:
    """Return the results document of a finished run, as a JSON object."""
    tested = [result.phase for result in next(iter(results.values()))]
    groups = [range(*ends) for ends in pairwise([0, *(setting.scenario.seen(k) for k in tested)])]
    base = groups[0]
    tallies = [[result.tally for result in of_seed] for of_seed in results.values()]
    return {
        "schema": SCHEMA,
        "method": setting.experiment.method,
        "exemplar_free": setting.exemplar_free,
        "config": setting.config,
        "seeds": list(results),
        "seed_varies": METHODS.get(setting.experiment.method).seed_varies or "nothing",
        "class_names": [setting.data.class_names[label] for label in setting.scenario.order],
        "phases": [
            _phase(group, base, by_seed)
            for group, by_seed in zip(groups, zip(*results.values(), strict=True), strict=True)
        ],
        **_accuracies(tallies, base),
        "forgetting": _spread([metrics.forgetting(t, groups) for t in tallies]),
        "backward_transfer": _spread([metrics.backward_transfer(t, groups) for t in tallies]),
        "other_readouts": {
            name: _accuracies([[result.others[name] for result in of_seed] for of_seed in results.values()], base)
            for name in other_readouts([result for of_seed in results.values() for result in of_seed])
        },
        **asdict(kept),
        "peak_memory_bytes": peak_memory_bytes(),
        "provenance": provenance,
    }


def _accuracies(tallies: Sequence[Sequence[metrics.Tally]], base: range) -> dict[str, Any]:
    """Return the accuracies of a run from the tallies of each seed, test by test."""
    last = [of_seed[-1] for of_seed in tallies]
    return {
        "average_accuracy": _spread([metrics.average_accuracy(t) for t in tallies]),
        "last_accuracy": _spread([metrics.accuracy(t) for t in last]),
        "base_accuracy": _spread([metrics.accuracy(t, base) for t in last]),
        "new_accuracy": _spread([metrics.new_accuracy(t, base) for t in last]),
    }


def write_results(
    out: Path, setting: Setting, results: BySeed, provenance: dict[str, Any], kept: Kept
) -> dict[str, Any]:
    """Write all files of a finished run atomically, ``results.json`` last; return the document."""
    document = build_results(setting, results, provenance, kept)
    _write_confusion(out / "confusion.npz", results)
    with atomic_write(out / "phases.csv") as temporary, temporary.open("w", encoding="utf-8", newline="") as text:
        csv.writer(text, lineterminator="\n").writerows(_table(document))
    write_json(out / "results.json", document)
    return document


def read_results(out: Path) -> dict[str, Any]:
    """Read the results document of a finished run.

    Raises:
        FileNotFoundError: there is none.
        FileFormatError: it is corrupt, inconsistent, or has another schema.
    """
    document: dict[str, Any] = read_json(out / "results.json", DOCUMENT)
    return document


def _write_confusion(path: Path, results: BySeed) -> None:
    """Write the kept matrices as NumPy's .npz, one in memory at a time; write no file if none were kept."""
    kept = [(seed, result.phase, result.confusion) for seed in results for result in results[seed] if result.confusion]
    if not kept:
        return
    with atomic_write(path) as temporary, zipfile.ZipFile(temporary, "w", zipfile.ZIP_DEFLATED) as archive:
        for seed, phase, confusion in kept:
            member = zipfile.ZipInfo(f"seed{seed}_phase{phase}.npy")  # no date: same counts, same bytes
            member.compress_type = zipfile.ZIP_DEFLATED
            with archive.open(member, "w") as file:
                np.lib.format.write_array(file, confusion.dense())


def kept_tests(document: Mapping[str, Any]) -> list[int]:
    """Return the numbers of the tests of a finished run whose confusion counts were kept."""
    return spread_out(len(document["phases"]), document["config"].get("confusions", KEPT))


def read_confusion(out: Path, seeds: Sequence[int], seen: Mapping[int, int]) -> Iterator[NDArray[np.int64]]:
    """Yield confusion counts (true x predicted) after some phases, summed over seeds; nothing if the run kept none.

    One matrix is in memory at a time: with 1623 classes it takes 21 MB.

    Args:
        out: folder of a finished run.
        seeds: of the run.
        seen: number of classes seen, by phase.

    Raises:
        FileFormatError: the file is truncated, corrupt, or from another run.
    """
    path = out / "confusion.npz"
    if not path.exists():
        return
    try:
        with zipfile.ZipFile(check_readable(path)) as archive:
            for phase, classes in seen.items():
                counts = np.zeros((classes, classes), dtype=np.int64)
                for seed in seeds:
                    counts += _counts(archive, f"seed{seed}_phase{phase}", classes)
                yield counts
    except (zipfile.BadZipFile, zlib.error, LookupError, EOFError, RuntimeError, OSError, ValueError) as error:
        raise FileFormatError(f"{path} does not hold the confusion counts of this run: {error}") from error


def _counts(archive: zipfile.ZipFile, name: str, classes: int) -> NDArray[np.int64]:
    """Read one array of an .npz file; check its type, shape and size before unpacking it."""
    member, expected = archive.getinfo(f"{name}.npy"), Array(("int32", "int64"), (classes, classes), low=0, high=2**40)
    with archive.open(member) as file:
        version = np.lib.format.read_magic(file)
        if version != (1, 0):
            raise Mismatch(f"{name} has .npy format version {version}, expected (1, 0)")
        shape, fortran_order, dtype = np.lib.format.read_array_header_1_0(file)
        check_headers({name: (dtype.name, shape)}, {name: expected}, {})
        if member.file_size != file.tell() + classes**2 * dtype.itemsize or fortran_order:
            raise Mismatch(f"{name} is truncated or corrupt")
        counts = np.frombuffer(file.read(), dtype=dtype).reshape(shape).astype(np.int64)
    expected.check_values(counts, name)
    return counts


def _phase(group: range, base: range, by_seed: Sequence[PhaseResult]) -> dict[str, Any]:
    tallies = [result.tally for result in by_seed]
    return {
        "phase": by_seed[0].phase,
        "classes_seen": group.stop,
        "new_classes": list(group),
        "accuracy": _spread([metrics.accuracy(t) for t in tallies]),
        "accuracy_base": _spread([metrics.accuracy(t, base) for t in tallies]),
        "accuracy_new": _spread([metrics.new_accuracy(t, base) for t in tallies]),
        "seconds": _spread([result.learn_seconds for result in by_seed]),
        "seconds_evaluate": _spread([result.evaluate_seconds for result in by_seed]),
    }


def _spread(values: Sequence[float | None]) -> dict[str, Any] | None:
    """Return mean and deviation over seeds; None if there is no value."""
    known = [value for value in values if value is not None]
    return metrics.mean_std(known) if known else None


def _table(document: Mapping[str, Any]) -> list[list[Any]]:
    """Return a header and one row per seed and phase."""
    rows: list[list[Any]] = [["seed", "phase", "classes_seen", *CURVES]]
    for number, seed in enumerate(document["seeds"]):
        for phase in document["phases"]:
            cells = [None if phase[name] is None else phase[name]["values"][number] for name in CURVES]
            rows.append([seed, phase["phase"], phase["classes_seen"], *cells])
    return rows
