"""Estimate the time, memory and disk of a reproduction, from rates measured on this machine in about a minute.

Base training and extraction are measured on some of the images themselves: a few steps of the real loop, a few batches
of the real extraction. The trainings for tables and figures are counted in flops, with rates measured on a small one.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from time import perf_counter

import numpy as np
import torch
from numpy.typing import NDArray

from dsal.analytic.learner import Learner
from dsal.analytic.rows import PhaseRows, from_arrays
from dsal.backbones import Backbone
from dsal.data import DataSet, Scenario
from dsal.linalg.backend import Lapack
from dsal.protocol.provenance import peak_memory_bytes
from dsal.reproduction.plan import TrainingSpec, named_file
from dsal.reproduction.training_archive import jobs_of
from dsal.training import BaseTraining, Recipe
from dsal.training.sample import every_nth

_SECONDS = 15.0  # duration of each measurement on images
_PROBED = 4_000  # images that a measurement draws from
_BATCH = 256
_FEATURES, _ROUNDS = 112, 3  # of the measurement of learning
CLASSES = 100
"""Classes of :class:`LearningTrial`."""


@dataclass(frozen=True)
class Cost:
    """One step: seconds, peak memory in bytes, bytes that stay on disk, and how often it is done."""

    name: str
    seconds: float
    memory: int
    disk: int = 0
    times: int = 1


@dataclass(frozen=True)
class Rates:
    """Flops a second on this machine: a matrix product, and the first and a later phase of learning, both streams."""

    product: float
    base: float
    phase: float


class LearningTrial:
    """Both streams on random features: the first phase, and later ones."""

    def __init__(self, size: int, rows: int) -> None:
        self.size, self.rows, self.random = size, rows, np.random.RandomState(1)
        self.first()

    def first(self) -> None:
        """Learn a first phase."""
        self.learner = Learner(size=self.size, backend=Lapack())
        self.later()

    def later(self) -> None:
        """Learn a phase, and solve for the weights."""
        features = self.random.standard_normal((self.rows, _FEATURES))
        read = from_arrays(features, np.arange(self.rows) % CLASSES, self.learner.backend.device)
        self.learner.learn(PhaseRows(read, self.rows, torch.arange(CLASSES), CLASSES))
        for ridge in self.learner.ridges:
            ridge.weights()


def flops(size: int, rows: int) -> tuple[float, float]:
    """Return the flops of the first and of a later phase of a :class:`LearningTrial`: see docs/speed.md."""
    solve = 2 * size**2 * CLASSES
    return 2 * (rows * size**2 + size**3 / 3 + solve), 2 * (2.0 * rows * size**2 + solve)


def measure_rates(size: int = 2048, rows: int = 1000) -> Rates:
    """Measure on the CPU, in about ten seconds on two cores; the three kinds of work take turns."""
    trial, (base, phase) = LearningTrial(size, rows), flops(size, rows)
    square = torch.rand(size, size, dtype=torch.float64)
    work: dict[str, tuple[float, Callable[[], object]]] = {
        "product": (2.0 * size**3, lambda: square @ square),
        "base": (base, trial.first),
        "phase": (phase, trial.later),
    }
    seconds: dict[str, list[float]] = {name: [] for name in work}
    for _ in range(_ROUNDS):
        for name, (_, call) in work.items():
            began = perf_counter()
            call()
            seconds[name].append(perf_counter() - began)
    return Rates(**{name: count / statistics.median(seconds[name]) for name, (count, _) in work.items()})


def pretraining_cost(
    data: DataSet, scenario: Scenario, recipe: Recipe, architecture: str, device: torch.device, workers: int | None
) -> tuple[Cost, Backbone]:
    """Measure some steps of base training on phase 0; return the cost, and a network to extract features with."""
    rows = torch.from_numpy(scenario.phase_rows(data.train.labels, 0))
    some = data.train.take(rows[every_nth(len(rows), _PROBED)])
    probe = BaseTraining(
        some,
        dataset=data.name,
        classes=scenario.labels(0),
        class_order="natural",
        architecture=architecture,
        recipe=replace(recipe, sizes=()),  # the largest images, which take longest
        device=device,
        workers=workers,
    )
    steps = timed(probe.fit.steps())
    weight_bytes = sum(value.nbytes for value in probe.model.state_dict().values())
    images = len(rows) // recipe.batch_size * recipe.batch_size * recipe.epochs
    name = f"base training, {recipe.epochs} epochs of {len(rows):,} images"
    kept = 2 if recipe.average else 1  # the average has the size of the weights
    return Cost(name, images / recipe.batch_size * steps, peak_memory_bytes(), (3 + kept) * weight_bytes), probe.model


def extraction_cost(data: DataSet, backbone: Backbone, kind: str) -> Cost:
    """Measure some batches; return the cost of extracting the features of all images, as float16 in shards."""
    images = data.at(backbone.card.size, backbone.card.in_channels).train
    some = images.take(every_nth(len(images), _PROBED))
    batches = (backbone.pooled(batch, kind) for batch, _ in some.batches(_BATCH))
    seconds, total = timed(batches), len(data.train) + len(data.test)
    size = min(_BATCH, len(some))
    return Cost(
        f"features of {total:,} images", total / size * seconds, peak_memory_bytes(), 2 * total * backbone.widths[kind]
    )


def training_costs(
    needs: Sequence[TrainingSpec],
    rates: Rates,
    *,
    size: int,
    width: int,
    labels: tuple[NDArray[np.int64], NDArray[np.int64]],
    classes: int,
) -> list[Cost]:
    """Return the costs of the trainings for tables and figures, by K: learning and testing all phases.

    Args:
        needs: of the requested tables and figures, all on one data set.
        rates: of this machine.
        size: d_B.
        width: d_in.
        labels: of the training and of the test samples.
        classes: number of classes.
    """
    costs = []
    jobs = sorted(jobs_of(needs), key=lambda job: (job.needs[0].phases, len(job.needs)))
    for (phases, compensations), same in groupby(jobs, key=lambda job: (job.needs[0].phases, len(job.needs))):
        scenario, streams = Scenario.deal(classes, phases=phases), 1 + compensations
        rows, tested = scenario.phase_sizes(labels[0]), np.cumsum(scenario.phase_sizes(labels[1]))
        seconds = 0.0
        for k, n in enumerate(rows):
            seen, present = scenario.seen(k), len(scenario.phases[k])
            expansion = 2.0 * n * width * size + 2.0 * n * size * present
            update = n * size**2 + (1 if k == 0 else 2) * size**3 / 3
            update = min(update, 2.0 * n * size**2) if k else update
            rate = rates.base if k == 0 or update < 2.0 * n * size**2 else rates.phase
            solve = 2.0 * size**2 * seen
            seconds += streams * (expansion + update + solve) / rate
            test = 2.0 * int(tested[k]) * size * (width + seen)
            seconds += streams * test / rates.product
        memory = 8 * streams * (size**2 + 2 * size * classes) + 8 * (streams + 1) * int(tested[-1]) * classes
        count = len(list(same))
        plural = "s" if compensations > 1 else ""
        name = f"{named_file(needs[0].dataset)}, K = {phases}, {compensations} compensation stream{plural}"
        costs.append(Cost(name, seconds, memory + 2**29, 2**22, count))
    return costs


def timed(steps: Iterator[object]) -> float:
    """Return seconds per step, measured for some seconds after a warm-up step, or that step's if it is the only one."""
    began = perf_counter()
    next(steps)
    first, done, start = perf_counter() - began, 0, perf_counter()
    for _ in steps:
        done += 1
        if perf_counter() - start > _SECONDS:
            break
    return (perf_counter() - start) / done if done else first
