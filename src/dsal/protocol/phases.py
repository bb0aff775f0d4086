"""The protocol: learn a phase, test on all classes seen so far, and repeat up to the last phase.

If phases are tiny, testing takes longer than learning; then only every n-th phase may be tested, and the classes that
arrived since the last test form one group.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from time import perf_counter
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from dsal.base.progress import Progress
from dsal.data import Samples, Scenario
from dsal.distributed import ALONE, Team
from dsal.errors import InputError
from dsal.methods.contract import Method, Phase
from dsal.protocol.metrics import KEPT, ConfusionCounts, Tally, confusion_counts, spread_out


class TrainTestData(Protocol):
    """Training and test samples with data-set labels: a set of features, or a data set of images."""

    @property
    def train(self) -> Samples: ...
    @property
    def test(self) -> Samples: ...


@dataclass(frozen=True)
class PhaseResult:
    """The result of a test after a phase.

    Attributes:
        phase: k, from 0.
        tally: test samples of each class seen, and those that were classified correctly.
        confusion: over the classes seen, in order of arrival; None if the counts of this test are not kept.
        learn_seconds: wall-clock time of learning since the last test: this phase and the untested ones before it.
        evaluate_seconds: wall-clock time of scoring the test samples of all classes seen.
        others: tallies of other read-outs of the method, by name.
    """

    phase: int
    tally: Tally
    confusion: ConfusionCounts | None
    learn_seconds: float
    evaluate_seconds: float
    others: Mapping[str, Tally] = field(default_factory=dict)


def other_readouts(results: Sequence[PhaseResult]) -> list[str]:
    """Return the names of the other read-outs that every one of these results has."""
    return sorted(set.intersection(*(set(result.others) for result in results))) if results else []


@dataclass(frozen=True)
class PhaseProgress:
    """Progress within a phase.

    Attributes:
        phase: k, from 0.
        progress: within that phase.
        learn_seconds: wall-clock time of learning since the last test, up to now.
    """

    phase: int
    progress: Progress
    learn_seconds: float


def is_tested(k: int, scenario: Scenario, every: int) -> bool:
    """Return whether a test follows phase k: after phases 0, ``every``, 2 ``every`` ... and the last."""
    return k % every == 0 or k == scenario.last


def kept_phases(scenario: Scenario, every: int, most: int) -> set[int]:
    """Return the tested phases whose confusion counts are kept: at most ``most``, evenly spaced."""
    tested = [k for k in range(len(scenario.phases)) if is_tested(k, scenario, every)]
    return {tested[number] for number in spread_out(len(tested), most)}


def run_phases(
    method: Method,
    data: TrainTestData,
    scenario: Scenario,
    start: int = 0,
    every: int = 1,
    *,
    learned: float = 0.0,
    confusions: int = KEPT,
    clock: Callable[[], float] = perf_counter,
    team: Team = ALONE,
) -> Iterator[PhaseResult | PhaseProgress]:
    """Learn and test phase by phase; yield results, and progress within phases.

    The method is idle while the caller handles a yielded item, so it may be saved then. In a team of processes, each
    tests a part of the samples, and all get the same counts.

    Args:
        method: has learned all phases before ``start``, and perhaps a part of phase ``start``.
        data: training and test samples.
        scenario: which classes arrive when.
        start: the first phase to learn.
        every: test after every n-th phase.
        learned: seconds already spent learning since the last test.
        confusions: keep confusion counts of at most this many tests.
        clock: what seconds are read from; with ``time.process_time`` they are those of the processor.
        team: the processes that share the work.

    Raises:
        InputError: a phase has no training or no test samples.
    """
    train_y, test_y = data.train.labels, data.test.labels
    for part, labels in (("training", train_y), ("test", test_y)):
        sizes = scenario.phase_sizes(labels)
        if not all(sizes):
            raise InputError(f"phase {sizes.index(0)} has no {part} samples; every phase needs some")
    train = data.train.relabel(torch.from_numpy(scenario.positions(train_y)))
    test = data.test.relabel(torch.from_numpy(scenario.positions(test_y)))
    method.team, kept = team, kept_phases(scenario, every, confusions)
    for k in range(start, len(scenario.phases)):
        rows = torch.from_numpy(scenario.phase_rows(train_y, k))
        began = clock()
        for progress in method.learn(Phase(k, scenario.phases[k], train.take(rows))):
            learned += clock() - began
            yield PhaseProgress(k, progress, learned)
            began = clock()
        tested = clock()
        learned += tested - began
        if not is_tested(k, scenario, every):
            continue
        rows = torch.from_numpy(scenario.seen_rows(test_y, k))
        some = test.take(rows[team.share(len(rows))])
        predicted = method.predict(some) if len(some) else np.empty(0, dtype=np.int64)
        counts = _counted(some, predicted, scenario.seen(k), team)
        seconds = clock() - tested
        others = {
            name: Tally.of(_counted(some, answers, scenario.seen(k), team))
            for name, answers in method.other_predictions(some).items()
        }
        confusion = ConfusionCounts.of(counts) if k in kept else None
        yield PhaseResult(k, Tally.of(counts), confusion, learned, seconds, others)
        learned = 0.0


def _counted(samples: Samples, predicted: NDArray[np.int64], seen: int, team: Team) -> NDArray[np.int32]:
    """Return confusion counts (seen, seen) of the samples of all processes."""
    counts = confusion_counts(samples.labels.numpy(), predicted, seen)
    team.sum_(torch.from_numpy(counts))
    return counts
