"""gamma and C as a run would choose them from its own training samples, and how far that is from the best on test."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from dsal.activations import resolve
from dsal.blas import backend_for
from dsal.evaluation.experiment import Setting
from dsal.expansion import RandomProjection
from dsal.experiments.item import percent
from dsal.experiments.training import RATIOS, Stream, train
from dsal.streams import Block, DualStream
from dsal.tuning import GammaChoice, RatioFit, choose_gamma

SAMPLE = 1024
"""Rows of a phase that are left out in turn."""
Rows = NDArray[np.int64]
CHECKED_GAMMAS = (0.01, 0.1, 1.0, 10.0, 100.0)


@dataclass(frozen=True)
class Chosen:
    """After a phase: gamma, chosen in phase 0 and kept, and C, from all phases so far."""

    phase: int
    gamma: GammaChoice
    ratio: float


@dataclass(frozen=True)
class Check:
    """Last accuracy on test data, in percent: with what was chosen, and the best of a grid, which was not used."""

    last: float
    best_last: float
    best_gamma: float
    best_ratio: float

    @property
    def loss(self) -> float:
        """Points that the choice loses against the best of the grid."""
        return self.best_last - self.last


def tune(setting: Setting, *, size: int, activation: str = "tanh", seed: int = 0) -> Iterator[Chosen]:
    """Learn phase by phase; no test sample is read, and none of an earlier phase.

    Args:
        setting: data and scenario.
        size: d_B.
        activation: of the compensation stream.
        seed: of the random projection, and of the rows that are left out.
    """
    data, scenario, backend = setting.data, setting.scenario, backend_for("auto")
    positions, random = scenario.positions(data.train_y), np.random.RandomState(seed)
    nothing = torch.empty(0, data.train_x.shape[1], dtype=torch.float64)
    expansion = RandomProjection.build(data.train_x.shape[1], size, seed, nothing).to(backend.device)
    relu, sigma = resolve("relu"), resolve(activation)
    streams, choice, fit = None, None, RatioFit()

    def block(rows: Rows) -> Block:
        features = torch.from_numpy(data.train_x[rows].astype(np.float64))
        return Block(features.to(backend.device), torch.from_numpy(positions[rows]).to(backend.device))

    for k, classes in enumerate(scenario.phases):
        rows = scenario.phase_rows(data.train_y, k)

        def read(rows: Rows = rows) -> Iterator[Block]:
            return (block(rows[start : start + 2048]) for start in range(0, len(rows), 2048))

        sample = block(rows[random.permutation(len(rows))[:SAMPLE]])
        if streams is None or choice is None:
            choice = choose_gamma(read, sample, expansion, relu, classes.stop, backend)
            streams = DualStream(
                expansion,
                main_activation=relu,
                activation=sigma,
                gamma=choice.gamma,
                gamma_comp=choice.gamma,
                cleanse=True,
                backend=backend,
            )
        present = torch.arange(classes.start, classes.stop, device=backend.device)
        streams.learn(read, len(rows), present, classes.stop)
        main, both = (streams.leave_one_out(sample, present, k == 0, ratio) for ratio in (0.0, 1.0))
        true = (sample.columns[:, None] == torch.arange(classes.stop, device=backend.device)).double()
        errors, corrections = (part.cpu().numpy() for part in (true - main, both - main))
        fit = fit.plus(errors, corrections, np.ones(len(errors)), float(len(rows)))
        yield Chosen(k, choice, fit.ratio)


def check(
    setting: Setting,
    gamma: float,
    ratio: float,
    *,
    size: int,
    activation: str = "tanh",
    seed: int = 0,
    gammas: Sequence[float] = CHECKED_GAMMAS,
) -> Check:
    """Compare a choice with the best of ``gammas`` x C = 0 .. 2 on test data: six trainings."""
    stream = Stream(activation)

    def trained(gamma: float, ratio: float) -> tuple[float, list[float]]:
        measured = train(setting.data, setting.scenario, [stream], size=size, gamma=gamma, ratio=ratio, seed=seed)[
            stream.name
        ]
        grid = [percent(hits, measured.totals) for hits in measured.grid]
        return percent(measured.hits[-1], measured.totals), grid

    last, _ = trained(gamma, ratio)
    found = [(value, tried, RATIOS[place]) for tried in gammas for place, value in enumerate(trained(tried, ratio)[1])]
    best, best_gamma, best_ratio = max(found, key=lambda entry: entry[0])
    return Check(last, best, best_gamma, best_ratio)
