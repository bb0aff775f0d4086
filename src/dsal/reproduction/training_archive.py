"""Trainings on disk: one file per stream, written when its training is finished, so that it is never repeated.

A folder belongs to one choice of data and sizes; any other choice is refused rather than mixed in.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from itertools import groupby
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

from dsal.errors import InputError
from dsal.files.schema import ANY_TABLE, Array, Number, Record, Schema, read_json, write_json
from dsal.files.tensors import load_tensors, save_tensors
from dsal.protocol.experiment import Setting, prepare
from dsal.protocol.metrics import ConfusionCounts
from dsal.protocol.provenance import provenance
from dsal.reproduction.plan import Plan, TrainingSpec, named_file
from dsal.reproduction.stream_training import MAIN, Measurement, train

_KIND = "training of a reproduction"
_SCHEMA = Schema(
    _KIND,
    Record({"provenance": ANY_TABLE, "seconds": Number(0, 1e9), "stored_bytes": Number(0, 2**60, whole=True)}),
    {
        "hits": Array("int32", ("phases", "classes"), low=0),
        "grid": Array("int32", ("ratios", "classes"), low=0),
        "totals": Array("int32", ("classes",), low=0),
        "best": Array("int32", ("samples", "shown"), low=0),
        "scores": Array("float64", ("samples", "shown")),
        "seconds": Array("float64", ("phases", 2), low=0),
        r"classes\d+": Array("int64", (), low=1, optional=True),
        r"cells\d+": Array("int64", ("_cells",), low=0, optional=True),
        r"times\d+": Array("int32", ("_cells",), low=1, optional=True),
    },
)
_DATA = Record({}, rest=ANY_TABLE)
_TOGETHER = 3  # compensation streams per main stream: each needs another d x d matrix


@dataclass(frozen=True)
class Job:
    """Needs that one training serves: the same data set, K and seed."""

    needs: tuple[TrainingSpec, ...]

    @property
    def title(self) -> str:
        """Description of the training."""
        need = self.needs[0]
        names = ", ".join(each.stream.name for each in self.needs)
        return f"{named_file(need.dataset)}, K = {need.phases}, seed {need.seed}: {names}"


def jobs_of(needs: Sequence[TrainingSpec]) -> list[Job]:
    """Return the fewest trainings that serve all needs."""
    jobs = []
    for _, together in groupby(sorted(set(needs)), key=lambda need: (need.dataset, need.phases, need.seed)):
        same = list(together)
        jobs += [Job(tuple(same[i : i + _TOGETHER])) for i in range(0, len(same), _TOGETHER)]
    return jobs


class TrainingArchive:
    """The folder of a reproduction."""

    def __init__(self, plan: Plan, out: Path) -> None:
        self.plan, self.out = plan, out

    def open(self, needs: Sequence[TrainingSpec]) -> None:
        """Create the folder, or check that its content was made from the same data with the same options.

        Raises:
            InputError: it was not.
        """
        self.out.mkdir(parents=True, exist_ok=True)
        path = self.out / "data.json"
        stored = read_json(path, _DATA) if path.is_file() else {}
        for need in {need.dataset: need for need in needs}.values():
            setting, name = self.setting(need), named_file(need.dataset)
            options = ("expansion_size", "gamma", "compensation", "class_order", "features")
            asked = {"sha256": setting.data.fingerprint, **{key: setting.config[key] for key in options}}
            before = stored.setdefault(name, asked)
            changed = [f"{key} ({before.get(key)} there, {asked[key]} here)" for key in asked
                       if before.get(key) != asked[key]]  # fmt: skip
            if changed:
                raise InputError(
                    f"{self.out} contains trainings on {name} with other {', '.join(changed)}. Use another folder."
                )
        write_json(path, stored)

    def jobs(self, needs: Sequence[TrainingSpec]) -> list[Job]:
        """Return the trainings that are still missing, as few as possible."""
        return jobs_of([need for need in needs if not self._path(need, need.stream.name).is_file()])

    def run(self, jobs: Sequence[Job]) -> Iterator[Job]:
        """Run the trainings in turn; yield each one when its files are written."""
        for job in jobs:
            first, began = job.needs[0], perf_counter()
            setting = self.setting(first)
            origin = provenance(setting)
            measured = train(
                setting.features,
                setting.scenario,
                [need.stream for need in job.needs],
                size=setting.config["expansion_size"],
                gamma=setting.config["gamma"],
                ratio=self.plan.compensation,
                seed=first.seed,
            )
            seconds = (perf_counter() - began) / len(job.needs)
            facts = {"kind": _KIND, "provenance": origin, "seconds": seconds}
            for name, measurement in measured.items():
                path = self._path(first, name)
                path.parent.mkdir(parents=True, exist_ok=True)
                _save(path, measurement, facts)
            yield job

    def setting(self, need: TrainingSpec, method: str = "ds-al", seeds: tuple[int, ...] | None = None) -> Setting:
        """Load the data and scenario of a need."""
        return prepare(self.plan.experiment(need, method, seeds), lambda what, done, total: None)

    def main(self, need: TrainingSpec) -> Measurement:
        """Read the main stream of a training: ACIL."""
        return self._load(self._path(need, MAIN))[0]

    def stream(self, need: TrainingSpec) -> Measurement:
        """Read both streams of a training: DS-AL."""
        return self._load(self._path(need, need.stream.name))[0]

    def origin(self, need: TrainingSpec) -> dict[str, Any]:
        """Read the provenance of a training."""
        return self._load(self._path(need, need.stream.name))[1]

    def total_seconds(self) -> float:
        """Return the total time of all trainings in the folder."""
        files = (self.out / "trainings").glob("*/*.safetensors")
        return float(sum(load_tensors(path, _SCHEMA)[1]["seconds"] for path in files if path.stem != MAIN))

    def _path(self, need: TrainingSpec, name: str) -> Path:
        folder = f"{named_file(need.dataset)}-k{need.phases}-seed{need.seed}"
        return self.out / "trainings" / folder / f"{name}.safetensors"

    def _load(self, path: Path) -> tuple[Measurement, dict[str, Any]]:
        arrays, facts = load_tensors(path, _SCHEMA)
        confusions = {}
        for k in range(len(arrays["hits"])):
            if f"cells{k}" in arrays:
                parts = (arrays[f"{name}{k}"] for name in ("cells", "times"))
                confusions[k] = ConfusionCounts(int(arrays[f"classes{k}"]), *parts)
        own = {name: arrays[name] for name in _ARRAYS}
        return Measurement(**own, confusions=confusions, stored_bytes=facts["stored_bytes"]), facts["provenance"]


_ARRAYS = [field.name for field in fields(Measurement) if field.name not in ("confusions", "stored_bytes")]


def _save(path: Path, measurement: Measurement, facts: dict[str, Any]) -> None:
    arrays = {name: getattr(measurement, name) for name in _ARRAYS}
    for k, confusion in measurement.confusions.items():
        arrays[f"classes{k}"] = np.array(confusion.classes)
        arrays[f"cells{k}"], arrays[f"times{k}"] = confusion.cells, confusion.counts
    save_tensors(path, arrays, {**facts, "stored_bytes": measurement.stored_bytes})
