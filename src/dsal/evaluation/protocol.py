"""The protocol: learn a phase, test on all classes seen so far, and so on to the last phase.

Where phases are tiny, testing takes longer than learning; then every n-th phase may be tested alone, and the classes
that arrived since the last test are one group.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from time import perf_counter
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from dsal.data import Samples, Scenario
from dsal.distributed import ALONE, Team
from dsal.errors import InputError
from dsal.evaluation.metrics import confusion_counts
from dsal.methods.contract import Method, Phase
from dsal.progress import Progress


class Split(Protocol):
    """Training and test samples with data-set labels: a set of features, or a data set of images."""

    @property
    def train(self) -> Samples: ...
    @property
    def test(self) -> Samples: ...


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


@dataclass(frozen=True)
class PhaseProgress:
    """How far a phase has been learned.

    Attributes:
        phase: k, from 0.
        progress: inside that phase.
        learn_seconds: wall-clock time of learning since the last test, up to now.
    """

    phase: int
    progress: Progress
    learn_seconds: float


def is_tested(k: int, scenario: Scenario, every: int) -> bool:
    """Whether a test follows phase k: after phases 0, ``every``, 2 ``every`` ... and the last."""
    return k % every == 0 or k == scenario.last


def run_phases(
    method: Method,
    data: Split,
    scenario: Scenario,
    start: int = 0,
    every: int = 1,
    *,
    learned: float = 0.0,
    team: Team = ALONE,
) -> Iterator[PhaseResult | PhaseProgress]:
    """Learn phase by phase to the last, and test; yields results, and progress inside of phases.

    The method rests while the caller has what was yielded: it may be saved then. In a team of processes each tests its
    share of the samples, and all get the same counts.

    Args:
        method: has learned all phases before ``start``, and perhaps a part of that one.
        data: training and test samples.
        scenario: which classes arrive when.
        start: the phase to begin with.
        every: test after every so many phases.
        learned: seconds that learning has taken since the last test.
        team: the processes that share the work.

    Raises:
        InputError: a phase has no training or no test samples.
    """
    train_y, test_y = data.train.labels, data.test.labels
    for part, labels in (("training", train_y), ("test", test_y)):
        for k in range(len(scenario.phases)):
            if not len(scenario.phase_rows(labels, k)):
                raise InputError(f"phase {k} has no {part} samples; every phase needs some")
    train = data.train.relabel(torch.from_numpy(scenario.positions(train_y)))
    test = data.test.relabel(torch.from_numpy(scenario.positions(test_y)))
    method.team = team
    for k in range(start, len(scenario.phases)):
        rows = torch.from_numpy(scenario.phase_rows(train_y, k))
        began = perf_counter()
        for progress in method.learn(Phase(k, scenario.phases[k], train.take(rows))):
            learned += perf_counter() - began
            yield PhaseProgress(k, progress, learned)
            began = perf_counter()
        tested = perf_counter()
        learned += tested - began
        if not is_tested(k, scenario, every):
            continue
        rows = torch.from_numpy(scenario.seen_rows(test_y, k))
        some = test.take(rows[team.share(len(rows))])
        predicted = method.predict(some) if len(some) else np.empty(0, dtype=np.int64)
        counts = confusion_counts(some.labels.numpy(), predicted, scenario.seen(k))
        team.sum_(torch.from_numpy(counts))
        yield PhaseResult(k, counts, learned, perf_counter() - tested)
        learned = 0.0
