"""The protocol: learn a phase, test on all classes seen so far, and so on to the last phase.

Where phases are tiny, testing takes longer than learning; then every n-th phase may be tested alone, and the classes
that arrived since the last test are one group.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from time import perf_counter
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from dsal.data import Scenario
from dsal.distributed import current
from dsal.errors import InputError
from dsal.evaluation.metrics import confusion_counts
from dsal.methods.contract import Method


class Split(Protocol):
    """Training and test samples with data-set labels; :class:`~dsal.data.features.FeatureSet` is one."""

    @property
    def train_x(self) -> NDArray[Any]: ...
    @property
    def train_y(self) -> NDArray[np.int64]: ...
    @property
    def test_x(self) -> NDArray[Any]: ...
    @property
    def test_y(self) -> NDArray[np.int64]: ...


@dataclass(frozen=True)
class PhaseResult:
    """What a phase gave after which was tested.

    Attributes:
        phase: k, from 0.
        counts: confusion counts over the classes seen, in order of arrival: (seen, seen), true x predicted.
        learn_seconds: wall-clock time of learning since the last test: this phase, and those before it untested.
        evaluate_seconds: wall-clock time of scoring the test samples of all classes seen.
    """

    phase: int
    counts: NDArray[np.int32]
    learn_seconds: float
    evaluate_seconds: float


def is_tested(k: int, scenario: Scenario, every: int) -> bool:
    """Whether a test follows phase k: after phases 0, ``every``, 2 ``every`` ... and the last."""
    return k % every == 0 or k == scenario.last


def run_phases(
    method: Method, data: Split, scenario: Scenario, start: int = 0, every: int = 1
) -> Iterator[PhaseResult]:
    """Learn phase by phase, from phase ``start`` (whose predecessors ``method`` has learned) to the last, and test.

    The method rests while the caller has a result: it may be saved then. In a team of processes each tests its share of
    the samples, and all get the same counts.

    Raises:
        InputError: a phase has no training or no test samples.
    """
    team = current()
    train_y, test_y = scenario.positions(data.train_y), scenario.positions(data.test_y)
    for part, labels in (("training", data.train_y), ("test", data.test_y)):
        for k in range(len(scenario.phases)):
            if not len(scenario.phase_rows(labels, k)):
                raise InputError(f"phase {k} has no {part} samples; every phase needs some")
    learning = 0.0
    for k in range(start, len(scenario.phases)):
        rows = scenario.phase_rows(data.train_y, k)
        began = perf_counter()
        method.learn(data.train_x[rows], train_y[rows], scenario.phases[k])
        learned = perf_counter()
        learning += learned - began
        if not is_tested(k, scenario, every):
            continue
        rows = scenario.seen_rows(data.test_y, k)
        rows = rows[team.share(len(rows))]
        predicted = method.predict(data.test_x[rows]) if len(rows) else rows
        counts = confusion_counts(test_y[rows], predicted, scenario.seen(k))
        team.sum_(torch.from_numpy(counts))
        yield PhaseResult(k, counts, learning, perf_counter() - learned)
        learning = 0.0
