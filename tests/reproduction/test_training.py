"""Sharing one main stream must change nothing: every number is that of a run of its own."""

import numpy as np
import pytest

from dsal.data import Scenario
from dsal.data.features.feature_set import FeatureSet
from dsal.methods import METHODS
from dsal.protocol.phases import run_phases
from dsal.reproduction.stream_training import MAIN, RATIOS, Measurement, Stream, train

OPTIONS = {"expansion_size": 64, "gamma": 0.1, "seed": 3}


@pytest.fixture(scope="module")
def scenario() -> Scenario:
    return Scenario.deal(100, phases=7, order="natural")


@pytest.fixture(scope="module")
def measured(sample: FeatureSet, scenario: Scenario) -> dict[str, Measurement]:
    streams = [Stream("tanh"), Stream("sigmoid"), Stream("tanh", cleanse=False)]
    return train(sample, scenario, streams, size=64, gamma=0.1, ratio=0.6, seed=3)


@pytest.mark.parametrize(
    ("name", "method", "options"),
    [
        (MAIN, "acil", {}),
        ("tanh", "ds-al", {"compensation": 0.6}),
        ("sigmoid", "ds-al", {"compensation": 0.6, "activation": "sigmoid"}),
    ],
)
def test_the_counts_are_those_of_the_method_alone(
    sample: FeatureSet,
    scenario: Scenario,
    measured: dict[str, Measurement],
    name: str,
    method: str,
    options: dict[str, float | str],
) -> None:
    alone = METHODS.get(method)(**OPTIONS, **options)
    for result, kept, hits in zip(
        run_phases(alone, sample, scenario), measured[name].confusions.values(), measured[name].hits, strict=True
    ):
        counts = kept.dense()
        assert (result.confusion.dense() == counts).all()
        assert (np.diag(counts) == hits[: len(counts)]).all()
        assert not hits[len(counts) :].any()
    assert measured[name].stored_bytes == pytest.approx(alone.state().nbytes, rel=1e-2)


def test_a_sweep_over_the_ratio_is_that_of_trainings_with_each(
    sample: FeatureSet, scenario: Scenario, measured: dict[str, Measurement]
) -> None:
    for ratio in (0.3, 1.7):
        alone = METHODS.get("ds-al")(**OPTIONS, compensation=ratio)
        *_, last = run_phases(alone, sample, scenario)
        assert (measured["tanh"].grid[RATIOS.index(ratio)] == last.tally.hits).all()
    assert (measured["tanh"].grid[0] == measured[MAIN].hits[-1]).all()


def test_cleansing_matters_and_begins_after_the_first_phase(measured: dict[str, Measurement]) -> None:
    cleansed, plain = measured["tanh"], measured["tanh-uncleansed"]
    assert (cleansed.hits[0] == plain.hits[0]).all()
    assert (cleansed.hits[-1] != plain.hits[-1]).any()


def test_the_best_five_begin_with_the_prediction(
    sample: FeatureSet, scenario: Scenario, measured: dict[str, Measurement]
) -> None:
    right = measured[MAIN].best[:, 0] == scenario.positions(sample.test_y)
    assert right.sum() == measured[MAIN].hits[-1].sum()
    assert (np.diff(measured[MAIN].scores, axis=1) <= 0).all()
