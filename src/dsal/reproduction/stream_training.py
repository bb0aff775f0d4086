"""Train one main stream with several compensation streams and measure each; choose gamma and C without test data.

The main stream depends neither on the compensation's activation nor on cleansing, and C acts only at inference. So one
training serves ACIL (the main stream), every variant of the compensation stream, and every C.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dsal.analytic.activations import resolve
from dsal.analytic.combine import combined
from dsal.analytic.learner import Learner
from dsal.analytic.rows import PhaseRows, from_arrays
from dsal.analytic.streams import Compensation
from dsal.classifier import DSALClassifier
from dsal.data import FeatureSet, Scenario
from dsal.data.samples import FeatureRows
from dsal.protocol.experiment import Setting
from dsal.protocol.metrics import KEPT, ConfusionCounts, confusion_counts, spread_out

RATIOS = tuple(round(0.1 * step, 1) for step in range(21))
"""C from 0 to 2: every compensation stream is measured at each value after the last phase."""
SHOWN_RATIO = 1.0
"""C of Fig. 3, for which the five best classes are kept."""
MAIN = "main"
CHECKED_GAMMAS = (0.01, 0.1, 1.0, 10.0, 100.0)

Array = NDArray[np.float64]


@dataclass(frozen=True, order=True)
class Stream:
    """A compensation stream: its activation, and whether residues of earlier classes are cleansed (PLC)."""

    activation: str = "tanh"
    cleanse: bool = True

    @property
    def name(self) -> str:
        """Name of its file."""
        return self.activation if self.cleanse else f"{self.activation}-uncleansed"


@dataclass(frozen=True, eq=False)
class Measurement:
    """Measurements of a stream after training: the main stream alone, or with a compensation stream added.

    Attributes:
        hits: test samples of each class that were classified correctly, after each phase, at the C of the training:
            (K + 1, classes).
        grid: the same after the last phase, for each C of ``RATIOS``: (21, classes); for the main stream only C = 0.
        totals: test samples of each class, (classes,).
        best: the five best classes of each test sample after the last phase, best first, at C = ``SHOWN_RATIO``;
            for the main stream without compensation: (n, 5).
        scores: their logits, (n, 5).
        seconds: learning and testing, after each phase, the main stream's included: (K + 1, 2).
        confusions: confusion counts at the C of the training by phase, after at most 51 phases, evenly spaced.
        stored_bytes: bytes kept between phases, at the end.
    """

    hits: NDArray[np.int32]
    grid: NDArray[np.int32]
    totals: NDArray[np.int32]
    best: NDArray[np.int32]
    scores: Array
    seconds: Array
    confusions: Mapping[int, ConfusionCounts]
    stored_bytes: int


def train(
    data: FeatureSet, scenario: Scenario, streams: Sequence[Stream], *, size: int, gamma: float, ratio: float, seed: int
) -> dict[str, Measurement]:
    """Learn and test all phases; return the measurements.

    Args:
        data: features.
        scenario: which classes arrive when.
        streams: the compensation streams to learn beside the main one.
        size: d_B.
        gamma: ridge of all streams.
        ratio: C to test with after every phase.
        seed: of the random projection.

    Returns:
        A measurement for ``"main"`` and for the name of each stream.
    """
    train_y, test_y = scenario.positions(data.train_y), scenario.positions(data.test_y)
    compensations = [Compensation(resolve(stream.activation), stream.cleanse) for stream in streams]
    learner = Learner(size=size, seed=seed, gamma=gamma, compensations=compensations)
    names = (MAIN, *(stream.name for stream in streams))
    shape, kept = (len(scenario.phases), len(scenario.order)), set(spread_out(len(scenario.phases), KEPT))
    hits = {name: np.zeros(shape, dtype=np.int32) for name in names}
    seconds = {name: np.zeros((shape[0], 2)) for name in names}
    confusions: dict[str, dict[int, ConfusionCounts]] = {name: {} for name in names}
    for k, classes in enumerate(scenario.phases):
        rows, tested = scenario.phase_rows(data.train_y, k), scenario.seen_rows(data.test_y, k)
        learning = dict(zip(names, _learned(learner, _rows(data.train, rows), train_y[rows], classes), strict=True))
        began, true = perf_counter(), test_y[tested]
        logits = dict(zip(names, learner.outputs(_rows(data.test, tested)), strict=True))
        testing = (perf_counter() - began) / len(logits)
        for name in names:
            seconds[name][k] = learning[MAIN] + (learning[name] if name != MAIN else 0.0), testing
            predicted = _mixed(logits, name, ratio).argmax(1)
            hits[name][k] = _hits(predicted, true, shape[1])
            if k in kept:
                confusions[name][k] = ConfusionCounts.of(confusion_counts(true, predicted.cpu().numpy(), classes.stop))
    totals, measured = np.bincount(test_y, minlength=shape[1]).astype(np.int32), {}
    for name in names:
        grid = [_mixed(logits, name, c).argmax(1) for c in (RATIOS[:1] if name == MAIN else RATIOS)]
        scores, best = _mixed(logits, name, SHOWN_RATIO).topk(min(5, shape[1]))
        measured[name] = Measurement(
            hits=hits[name],
            grid=np.stack([_hits(predicted, true, shape[1]) for predicted in grid]),
            totals=totals,
            best=best.cpu().numpy().astype(np.int32),
            scores=scores.cpu().numpy(),
            seconds=seconds[name],
            confusions=confusions[name],
            stored_bytes=_stored_bytes(learner, 1 if name == MAIN else 2),
        )
    return measured


def _rows(samples: FeatureRows, rows: NDArray[np.int64]) -> NDArray[Any]:
    """Return features (n, d); those in shards are read when they are sliced."""
    return cast(NDArray[Any], samples.take(torch.from_numpy(rows)).x)


def _mixed(logits: dict[str, Tensor], name: str, ratio: float) -> Tensor:
    """Return the combined logits of both streams, or those of the main stream."""
    return logits[MAIN] if name == MAIN else combined(logits[MAIN], logits[name], ratio)


def _hits(predicted: Tensor, true: NDArray[np.int64], classes: int) -> NDArray[np.int32]:
    return np.bincount(true[predicted.cpu().numpy() == true], minlength=classes).astype(np.int32)


def _learned(learner: Learner, X: NDArray[Any], y: NDArray[np.int64], classes: range) -> list[float]:
    """Learn a phase of new classes; return the seconds of each stream, the main one first."""
    device = learner.backend.device
    present = torch.arange(classes.start, classes.stop, device=device)
    seconds, began = [], perf_counter()
    for _ in learner.learn_streams(PhaseRows(from_arrays(X, y, device), len(X), present, classes.stop)):
        seconds.append(perf_counter() - began)
        began = perf_counter()
    return seconds


def _stored_bytes(learner: Learner, streams: int) -> int:
    """Return the size of the projection, and for each stream in use of a packed triangle and Q."""
    d_in, d = learner.built().projection.shape
    return 8 * (d_in * d + streams * (d * (d + 1) // 2 + d * learner.classes))


def percent(hits: Sequence[int] | np.ndarray[Any, Any], totals: Sequence[int] | np.ndarray[Any, Any]) -> float:
    """Return the percentage of test samples classified correctly.

    >>> percent([3, 1], [4, 4])
    50.0
    """
    return float(100 * int(np.sum(hits)) / int(np.sum(totals)))


def phase_accuracies(measurement: Measurement, seen: Sequence[int]) -> list[float]:
    """Return A_0 .. A_K; ``seen`` is the number of classes seen after each phase."""
    return [percent(measurement.hits[k, :n], measurement.totals[:n]) for k, n in enumerate(seen)]


@dataclass(frozen=True)
class Chosen:
    """The values after a phase: gamma, chosen in phase 0 and kept, and C, chosen from the phases so far."""

    phase: int
    gamma: float
    ratio: float


@dataclass(frozen=True)
class ChoiceCheck:
    """Last accuracy on test data, in percent: with the chosen values, and the best of a grid, which was not used."""

    last: float
    best_last: float
    best_gamma: float
    best_ratio: float

    @property
    def loss(self) -> float:
        """Percentage points by which the choice is below the best of the grid."""
        return self.best_last - self.last


def choose_values(setting: Setting, *, size: int, activation: str = "tanh", seed: int = 0) -> Iterator[Chosen]:
    """Learn phase by phase and yield the chosen values; no test sample is read, and none of an earlier phase.

    Args:
        setting: data and scenario.
        size: d_B.
        activation: of the compensation stream.
        seed: of the random projection, and of the left-out rows.
    """
    data, scenario = setting.features, setting.scenario
    positions = scenario.positions(data.train_y)
    model = DSALClassifier(size, gamma="auto", compensation="auto", activation=activation, random_state=seed)
    for k in range(len(scenario.phases)):
        rows = scenario.phase_rows(data.train_y, k)
        model.partial_fit(data.train_x[rows], positions[rows])
        yield Chosen(k, model.gamma_, model.compensation_)


def check_choice(
    setting: Setting,
    gamma: float,
    ratio: float,
    *,
    size: int,
    activation: str = "tanh",
    seed: int = 0,
) -> ChoiceCheck:
    """Compare a choice with the best of :data:`CHECKED_GAMMAS` x C = 0 .. 2 on test data: six trainings."""
    stream = Stream(activation)

    def trained(gamma: float, ratio: float) -> tuple[float, list[float]]:
        measured = train(setting.features, setting.scenario, [stream], size=size, gamma=gamma, ratio=ratio, seed=seed)[
            stream.name
        ]
        grid = [percent(hits, measured.totals) for hits in measured.grid]
        return percent(measured.hits[-1], measured.totals), grid

    last, _ = trained(gamma, ratio)
    found = [
        (value, tried, RATIOS[place])
        for tried in CHECKED_GAMMAS
        for place, value in enumerate(trained(tried, ratio)[1])
    ]
    best, best_gamma, best_ratio = max(found, key=lambda entry: entry[0])
    return ChoiceCheck(last, best, best_gamma, best_ratio)
