"""Tuning that looks at nothing but the training samples of phase 0."""

from dataclasses import replace
from inspect import signature

import numpy as np
import pytest

from dsal.data import Scenario
from dsal.data.features import FeatureSet
from dsal.evaluation.experiment import Experiment, settle
from dsal.evaluation.trials import BUDGET, Trial, best, hold_out, tune
from dsal.methods import METHODS


@pytest.mark.parametrize("name", METHODS.names())
def test_no_method_has_more_than_the_budget_and_all_begin_with_their_defaults(name: str) -> None:
    method = METHODS.get(name)
    assert 1 <= len(method.trials) <= BUDGET
    assert len({tuple(trial.items()) for trial in method.trials}) == len(method.trials)
    defaults = {key: parameter.default for key, parameter in signature(method).parameters.items()}
    assert method.trials[0].items() <= defaults.items()
    for trial in method.trials:
        made = method(**trial)
        assert {key: getattr(made, key) for key in trial} == trial


def test_a_fifth_of_each_base_class_is_held_out(sample: FeatureSet) -> None:
    scenario = Scenario.deal(100, phases=10, order=1993)
    split, inner = hold_out(sample, scenario)
    np.testing.assert_array_equal(np.bincount(split.train_y), [16] * 50)
    np.testing.assert_array_equal(np.bincount(split.test_y), [4] * 50)
    assert [len(phase) for phase in inner.phases] == [25, 5, 5, 5, 5, 5]
    base = {row.tobytes() for row in sample.train_x[np.isin(sample.train_y, scenario.labels(0))]}
    used = [row.tobytes() for row in (*split.train_x, *split.test_x)]
    assert len(set(used)) == len(used) == 1000  # no row twice: what is held out is not learned
    assert set(used) == base


def test_neither_test_data_nor_later_classes_take_part(sample: FeatureSet) -> None:
    experiment = Experiment(method="acil", expansion_size=16, phases=10)
    later = sample.train_y >= 50
    other = replace(
        sample, train_x=np.where(later[:, None], np.float32(9.0), sample.train_x), test_x=np.zeros_like(sample.test_x)
    )
    first, second = (list(tune(settle(experiment, data))) for data in (sample, other))
    assert first == second
    assert len(first) == len(METHODS.get("acil").trials)


def test_of_equals_the_first_wins() -> None:
    trials = [Trial({"gamma": 0.1}, 70.0), Trial({"gamma": 1.0}, 71.0), Trial({"gamma": 10.0}, 71.0)]
    assert best(trials) is trials[1]


@pytest.mark.parametrize(("base", "sizes"), [(1, [1]), (2, [1, 1]), (7, [4, 1, 1, 1])])
def test_few_base_classes_make_few_phases(base: int, sizes: list[int], sample: FeatureSet) -> None:
    _, inner = hold_out(sample, Scenario.deal(100, phases=3, base=base))
    assert [len(phase) for phase in inner.phases] == sizes
