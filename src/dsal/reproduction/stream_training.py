"""Train one main stream with several compensation streams, and measure each.

The main stream depends neither on the compensation's activation nor on cleansing, and C acts only at inference. So one
training serves ACIL (the main stream), every variant of the compensation stream, and every C.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
from dsal.data import FeatureSet, Scenario
from dsal.data.samples import FeatureRows
from dsal.protocol.metrics import KEPT, ConfusionCounts, confusion_counts, spread_out

RATIOS = tuple(round(0.1 * step, 1) for step in range(21))
"""C from 0 to 2: every compensation stream is measured at each value after the last phase."""
SHOWN_RATIO = 1.0
"""C of Fig. 3, for which the five best classes are kept."""
MAIN = "main"

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
    records = {name: _Record() for name in names}
    kept = set(spread_out(len(scenario.phases), KEPT))
    for k, classes in enumerate(scenario.phases):
        rows, tested = scenario.phase_rows(data.train_y, k), scenario.seen_rows(data.test_y, k)
        seconds = _learned(learner, _rows(data.train, rows), train_y[rows], classes)
        learning = dict(zip(names, seconds, strict=True))
        began = perf_counter()
        logits = dict(zip(names, learner.outputs(_rows(data.test, tested)), strict=True))
        testing = perf_counter() - began
        for name, record in records.items():
            record.seconds.append((learning[MAIN] + (learning[name] if name != MAIN else 0.0), testing / len(logits)))
            predicted = _mixed(logits, name, ratio).argmax(1)
            record.hits.append(_hits(predicted, test_y[tested], len(scenario.order)))
            if k in kept:
                counts = confusion_counts(test_y[tested], predicted.cpu().numpy(), classes.stop)
                record.confusions[k] = ConfusionCounts.of(counts)
    for name, record in records.items():
        for c in RATIOS[:1] if name == MAIN else RATIOS:
            record.grid.append(_hits(_mixed(logits, name, c).argmax(1), test_y[tested], len(scenario.order)))
    totals = np.bincount(test_y, minlength=len(scenario.order)).astype(np.int32)
    return {
        name: record.closed(_mixed(logits, name, SHOWN_RATIO), totals, _stored_bytes(learner, 1 if name == MAIN else 2))
        for name, record in records.items()
    }


def _rows(samples: FeatureRows, rows: NDArray[np.int64]) -> NDArray[Any]:
    """Return features (n, d); those in shards are read when they are sliced."""
    return cast(NDArray[Any], samples.take(torch.from_numpy(rows)).x)


def _mixed(logits: dict[str, Tensor], name: str, ratio: float) -> Tensor:
    """Return the combined logits of both streams, or those of the main stream."""
    return logits[MAIN] if name == MAIN else combined(logits[MAIN], logits[name], ratio)


def _hits(predicted: Tensor, true: NDArray[np.int64], classes: int) -> NDArray[np.int32]:
    return np.bincount(true[predicted.cpu().numpy() == true], minlength=classes).astype(np.int32)


class _Record:
    """Measurements collected phase by phase."""

    def __init__(self) -> None:
        self.hits: list[NDArray[np.int32]] = []
        self.grid: list[NDArray[np.int32]] = []
        self.confusions: dict[int, ConfusionCounts] = {}
        self.seconds: list[tuple[float, float]] = []

    def closed(self, logits: Tensor, totals: NDArray[np.int32], stored_bytes: int) -> Measurement:
        scores, best = logits.topk(min(5, logits.shape[1]))
        return Measurement(
            hits=np.stack(self.hits),
            grid=np.stack(self.grid),
            totals=totals,
            best=best.cpu().numpy().astype(np.int32),
            scores=scores.cpu().numpy(),
            seconds=np.array(self.seconds),
            confusions=self.confusions,
            stored_bytes=stored_bytes,
        )


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
