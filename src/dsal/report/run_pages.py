"""Run directories for the report: read, checked and given distinct labels."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from dsal.errors import InputError
from dsal.methods import METHODS
from dsal.protocol.metrics import MeanStd
from dsal.protocol.paper_numbers import PaperResult, comparable_results, nearest_result
from dsal.protocol.results import CURVES, kept_tests, read_results

_DATASETS = {
    "cifar10": "CIFAR-10",
    "cifar100": "CIFAR-100",
    "imagenet100": "ImageNet-100",
    "imagenet": "ImageNet",
    "omniglot": "Omniglot",
}


@dataclass(frozen=True)
class PhaseValues:
    """Measurements after one phase; ``new`` is None at phase 0."""

    number: int
    classes_seen: int
    accuracy: MeanStd
    base: MeanStd
    new: MeanStd | None
    learning: MeanStd  # seconds
    testing: MeanStd  # seconds


@dataclass(frozen=True)
class Run:
    """One experiment: a method on a data set, over one or more seeds."""

    path: Path
    label: str
    method: str
    config: Mapping[str, Any]
    seeds: tuple[int, ...]
    seed_varies: str
    phases: tuple[PhaseValues, ...]
    kept: tuple[int, ...]  # indices of the phases whose confusion counts were kept
    average: MeanStd
    last: MeanStd
    base: MeanStd
    new: MeanStd | None
    forgetting: MeanStd | None
    backward_transfer: MeanStd | None
    exemplar_free: bool
    stored_bytes: int
    peak_memory: int
    class_names: tuple[str, ...]  # in order of arrival
    provenance: Mapping[str, Any]
    paper: tuple[PaperResult, ...]  # the paper's results of all methods in this setting

    @property
    def paper_result(self) -> PaperResult | None:
        """The paper's result for the run's method; of two backbones the run's own, else the one listed first."""
        return nearest_result((r for r in self.paper if r.method.lower() == self.method), self.architecture)

    @property
    def training_history(self) -> tuple[Mapping[str, Any], ...]:
        """Epochs of the base training of the backbone, if they are known."""
        training = (self.provenance.get("backbone") or {}).get("training")
        history = training.get("history") if isinstance(training, Mapping) else None
        return tuple(entry for entry in history if isinstance(entry, Mapping)) if isinstance(history, list) else ()

    @property
    def origin(self) -> Mapping[str, Any]:
        """The provenance, with the number of epochs of the base training in place of the epochs."""
        if not self.training_history:
            return self.provenance
        backbone = self.provenance["backbone"]
        training = {**backbone["training"], "history": f"{len(self.training_history)} epochs"}
        return {**self.provenance, "backbone": {**backbone, "training": training}}

    @property
    def increments(self) -> int:
        """The paper's K: phases after phase 0."""
        return self.phases[-1].number

    @property
    def classes(self) -> int:
        return self.phases[-1].classes_seen

    @property
    def seconds(self) -> float:
        """Learning time of all phases."""
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


def read_runs(directories: Sequence[Path], documents: Sequence[Mapping[str, Any]] | None = None) -> tuple[Run, ...]:
    """Return the runs in directories, each with a unique label; ``results.json`` is read unless given (documents).

    Raises:
        InputError: no directory was given, or one holds no results.
        FileFormatError: a file is truncated or corrupt, foreign, or of another version.
    """
    if not directories:
        raise InputError("a report needs at least one run directory")
    paths = [Path(directory) for directory in directories]
    for path in paths:
        if not (path / "results.json").is_file():
            raise InputError(f"{path} contains no results.json: give the output folder of a finished `dsal run`")
    found = [read_results(path) for path in paths] if documents is None else documents
    return _labelled([_run(path, document) for path, document in zip(paths, found, strict=True)])


def paper_results_of(runs: Iterable[Run]) -> tuple[PaperResult, ...]:
    """Return the paper's results for the runs' methods, each once."""
    return tuple(dict.fromkeys(run.paper_result for run in runs if run.paper_result is not None))


def training_histories(runs: Iterable[Run]) -> list[tuple[str, tuple[Mapping[str, Any], ...]]]:
    """Return the base trainings behind the runs, each once, as (labels of the runs, epochs)."""
    found: list[tuple[list[str], tuple[Mapping[str, Any], ...]]] = []
    for run in runs:
        if not run.training_history:
            continue
        labels = next((labels for labels, epochs in found if epochs == run.training_history), None)
        if labels is None:
            found.append(([run.label], run.training_history))
        else:
            labels.append(run.label)
    return [("; ".join(labels), epochs) for labels, epochs in found]


def method_title(name: str) -> str:
    """Return the name of a method as its authors spell it, if known.

    >>> method_title("ds-al"), method_title("fecam"), method_title("mine")
    ('DS-AL', 'FeCAM', 'mine')
    """
    method = METHODS.get(name) if name in METHODS.names() else None
    return method.title if method is not None and method.name == name and method.title else name


def dataset_title(name: str) -> str:
    """Return the name of a data set as the field spells it, if known.

    >>> dataset_title("cifar100"), dataset_title("flowers")
    ('CIFAR-100', 'flowers')
    """
    return _DATASETS.get(name, name)


def _labelled(runs: Sequence[Run]) -> tuple[Run, ...]:
    """Label runs by method and K; by data set if there are several; by directory if that is not enough."""
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
    phases = tuple(
        PhaseValues(entry["phase"], entry["classes_seen"], *(_optional(entry[name]) for name in CURVES))  # type: ignore[arg-type]
        for entry in doc["phases"]
    )
    return Run(
        path=path,
        label=f"{method_title(doc['method'])}, K = {phases[-1].number}",
        method=doc["method"],
        config=doc["config"],
        seeds=tuple(doc["seeds"]),
        seed_varies=doc["seed_varies"],
        phases=phases,
        kept=tuple(kept_tests(doc)),
        **{name: _optional(doc[f"{name}_accuracy"]) for name in ("average", "last", "base", "new")},  # type: ignore[arg-type]
        forgetting=_optional(doc["forgetting"]),
        backward_transfer=_optional(doc["backward_transfer"]),
        exemplar_free=doc["exemplar_free"],
        stored_bytes=doc["stored_bytes"],
        peak_memory=doc["peak_memory_bytes"],
        class_names=tuple(doc["class_names"]),
        provenance=doc["provenance"],
        paper=comparable_results(doc),
    )


def _optional(entry: Mapping[str, Any] | None) -> MeanStd | None:
    return None if entry is None else MeanStd.of(entry)
