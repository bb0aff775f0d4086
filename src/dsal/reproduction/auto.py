"""gamma and C as a run chooses them from its own training samples, and how far they are from the best on test data."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from dsal.classifier import DSALClassifier
from dsal.protocol.experiment import Setting
from dsal.reproduction.item import percent
from dsal.reproduction.stream_training import RATIOS, Stream, train

CHECKED_GAMMAS = (0.01, 0.1, 1.0, 10.0, 100.0)


@dataclass(frozen=True)
class Chosen:
    """The values after a phase: gamma, chosen in phase 0 and kept, and C, chosen from the phases so far."""

    phase: int
    gamma: float
    ratio: float


@dataclass(frozen=True)
class Check:
    """Last accuracy on test data, in percent: with the chosen values, and the best of a grid, which was not used."""

    last: float
    best_last: float
    best_gamma: float
    best_ratio: float

    @property
    def loss(self) -> float:
        """Percentage points by which the choice is below the best of the grid."""
        return self.best_last - self.last


def tune(setting: Setting, *, size: int, activation: str = "tanh", seed: int = 0) -> Iterator[Chosen]:
    """Learn phase by phase and yield the chosen values; no test sample is read, and none of an earlier phase.

    Args:
        setting: data and scenario.
        size: d_B.
        activation: of the compensation stream.
        seed: of the random projection, and of the left-out rows.
    """
    data, scenario = setting.features, setting.scenario
    positions = scenario.positions(data.train_y)
    model = DSALClassifier(
        expansion_size=size, gamma="auto", compensation="auto", activation=activation, random_state=seed
    )
    for k in range(len(scenario.phases)):
        rows = scenario.phase_rows(data.train_y, k)
        model.partial_fit(data.train_x[rows], positions[rows])
        yield Chosen(k, model.gamma_, model.compensation_)


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
        measured = train(setting.features, setting.scenario, [stream], size=size, gamma=gamma, ratio=ratio, seed=seed)[
            stream.name
        ]
        grid = [percent(hits, measured.totals) for hits in measured.grid]
        return percent(measured.hits[-1], measured.totals), grid

    last, _ = trained(gamma, ratio)
    found = [(value, tried, RATIOS[place]) for tried in gammas for place, value in enumerate(trained(tried, ratio)[1])]
    best, best_gamma, best_ratio = max(found, key=lambda entry: entry[0])
    return Check(last, best, best_gamma, best_ratio)
