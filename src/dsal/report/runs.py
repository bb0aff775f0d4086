"""Run directories as the report sees them: read, checked and given labels that tell them apart."""

from __future__ import annotations

import zipfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dsal.errors import FileFormatError, InputError
from dsal.evaluation.paper_numbers import TABLE_1
from dsal.evaluation.results import read_results

_METHODS = {
    "air": "AIR",
    "fecam": "FeCAM",
    "fetril-fc": "FeTrIL-fc",
    "gkeal": "GKEAL",
    "ivoro-d": "iVoro-D",
    "ivoro-n": "iVoro-N",
    "ncm": "NCM",
    "ranpac": "RanPAC",
    "slda": "SLDA",
    **{result.method.lower(): result.method for result in TABLE_1},
}
_DATASETS = {
    "cifar10": "CIFAR-10",
    "cifar100": "CIFAR-100",
    "imagenet100": "ImageNet-100",
    "imagenet": "ImageNet",
    "omniglot": "Omniglot",
}


@dataclass(frozen=True)
class Value:
    """Mean over seeds, and their standard deviation where there is more than one."""

    mean: float
    std: float | None


@dataclass(frozen=True)
class Phase:
    """What was measured after one phase; ``new`` is missing at phase 0."""

    number: int
    classes_seen: int
    accuracy: Value
    base: Value
    new: Value | None
    learning: Value  # seconds
    testing: Value  # seconds


@dataclass(frozen=True)
class Run:
    """One experiment: a method on a data set, over one or more seeds."""

    path: Path
    label: str
    method: str
    config: Mapping[str, Any]
    seeds: tuple[int, ...]
    seed_varies: str
    phases: tuple[Phase, ...]
    average: Value
    last: Value
    base: Value
    new: Value | None
    forgetting: Value | None
    backward_transfer: Value | None
    exemplar_free: bool
    stored_bytes: int
    peak_memory: int
    class_names: tuple[str, ...]  # in order of arrival
    provenance: Mapping[str, Any]

    @property
    def increments(self) -> int:
        """The paper's K: phases after phase 0."""
        return self.phases[-1].number

    @property
    def classes(self) -> int:
        return self.phases[-1].classes_seen

    @property
    def seconds(self) -> float:
        """What learning took in all phases."""
        return sum(phase.learning.mean for phase in self.phases)

    @property
    def dataset(self) -> str:
        return str(self.config["dataset"])

    @property
    def family(self) -> str:
        """The images behind the data set: features of CIFAR-100 are compared with CIFAR-100."""
        return str(self.provenance.get("image_dataset") or self.dataset)

    @property
    def architecture(self) -> str:
        return str((self.provenance.get("backbone") or {}).get("architecture", ""))

    def confusion(self, phases: Iterable[Phase]) -> Iterator[NDArray[np.int64]]:
        """Counts (true x predicted, classes seen) of each phase, summed over seeds; nothing where none were written.

        One matrix is in memory at a time: with 1623 classes it has 21 MB.
        """
        path = self.path / "confusion.npz"
        if not path.is_file():
            return
        try:
            with np.load(path, allow_pickle=False) as file:
                for phase in phases:
                    counts = np.zeros((phase.classes_seen, phase.classes_seen), dtype=np.int64)
                    for seed in self.seeds:
                        of_seed = file[f"seed{seed}_phase{phase.number}"]
                        if of_seed.shape != counts.shape or of_seed.dtype.kind not in "iu":
                            raise ValueError(
                                f"{of_seed.dtype} counts of shape {of_seed.shape} after phase {phase.number}"
                            )
                        counts += of_seed.astype(np.int64)
                    yield counts
        except (OSError, KeyError, ValueError, zipfile.BadZipFile) as error:
            raise FileFormatError(f"{path} does not hold the confusion counts of this run: {error}") from error


def read_runs(directories: Sequence[Path]) -> tuple[Run, ...]:
    """Read ``results.json`` of each directory; labels are unique.

    Raises:
        InputError: no directory was given, or one holds no results.
        FileFormatError: a file is torn, foreign, or of another version.
    """
    if not directories:
        raise InputError("a report needs at least one run directory")
    paths = [Path(directory) for directory in directories]
    for path in paths:
        if not (path / "results.json").is_file():
            raise InputError(f"{path} holds no results.json: give a folder in which `dsal run --out` has finished")
    return _labelled([_run(path, read_results(path)) for path in paths])


def method_title(name: str) -> str:
    """A method as its authors spell it, where that is known.

    >>> method_title("ds-al"), method_title("fecam"), method_title("mine")
    ('DS-AL', 'FeCAM', 'mine')
    """
    return _METHODS.get(name, name)


def dataset_title(name: str) -> str:
    """A data set as the field spells it, where it is known.

    >>> dataset_title("cifar100"), dataset_title("flowers")
    ('CIFAR-100', 'flowers')
    """
    return _DATASETS.get(name, name)


def _labelled(runs: Sequence[Run]) -> tuple[Run, ...]:
    """Method and K; the data set where there are several; the directory's name where that is not enough."""
    families = {run.family for run in runs}
    labels = [f"{run.label}, {dataset_title(run.family)}" if len(families) > 1 else run.label for run in runs]
    shared = Counter(labels)
    for index, run in enumerate(runs):
        if shared[labels[index]] > 1:
            labels[index] += f", {run.path.resolve().name}"
    seen: Counter[str] = Counter()
    for index, label in enumerate(labels):
        seen[label] += 1
        if seen[label] > 1:
            labels[index] = f"{label} ({seen[label]})"
    return tuple(replace(run, label=label) for run, label in zip(runs, labels, strict=True))


def _run(path: Path, doc: Mapping[str, Any]) -> Run:
    try:
        phases = tuple(_phase(entry) for entry in doc["phases"])
        numbers = [phase.number for phase in phases]
        if not numbers or numbers[0] != 0 or numbers != sorted(set(numbers)):
            raise ValueError("phases do not count up from 0")
        if len(doc["class_names"]) < phases[-1].classes_seen:
            raise ValueError(f"{len(doc['class_names'])} names for {phases[-1].classes_seen} classes")
        return Run(
            path=path,
            label=f"{method_title(str(doc['method']))}, K = {numbers[-1]}",
            method=str(doc["method"]),
            config=dict(doc["config"]),
            seeds=tuple(int(seed) for seed in doc["seeds"]),
            seed_varies=str(doc["seed_varies"]),
            phases=phases,
            average=_value(doc["average_accuracy"]),
            last=_value(doc["last_accuracy"]),
            base=_value(doc["base_accuracy"]),
            new=_optional(doc["new_accuracy"]),
            forgetting=_optional(doc["forgetting"]),
            backward_transfer=_optional(doc["backward_transfer"]),
            exemplar_free=bool(doc["exemplar_free"]),
            stored_bytes=int(doc["stored_bytes"]),
            peak_memory=int(doc["peak_memory_bytes"]),
            class_names=tuple(str(name) for name in doc["class_names"]),
            provenance=dict(doc["provenance"]),
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise FileFormatError(f"{path / 'results.json'} is not the result of a run: {error!r}") from error


def _phase(entry: Mapping[str, Any]) -> Phase:
    return Phase(
        number=int(entry["phase"]),
        classes_seen=int(entry["classes_seen"]),
        accuracy=_value(entry["accuracy"]),
        base=_value(entry["accuracy_base"]),
        new=_optional(entry["accuracy_new"]),
        learning=_value(entry["seconds"]),
        testing=_value(entry["seconds_evaluate"]),
    )


def _value(entry: Mapping[str, Any]) -> Value:
    return Value(float(entry["mean"]), float(entry["std"]) if len(entry["values"]) > 1 else None)


def _optional(entry: Mapping[str, Any] | None) -> Value | None:
    return None if entry is None else _value(entry)
