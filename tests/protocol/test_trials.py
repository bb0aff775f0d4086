"""Tuning that looks at nothing but the training samples of phase 0."""

from dataclasses import replace
from inspect import signature

import numpy as np
import pytest

from dsal.data.features.feature_set import FeatureSet
from dsal.errors import LeakError
from dsal.methods import METHODS
from dsal.protocol.comparison import BUDGET, Trial, base_tuning_data, best, proxy_tuning_data, tune
from dsal.protocol.experiment import Experiment, settle


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
    data = base_tuning_data(settle(Experiment(phases=10), sample))
    samples = data.samples
    np.testing.assert_array_equal(np.bincount(samples.train.labels), [16] * 50)
    np.testing.assert_array_equal(np.bincount(samples.test.labels), [4] * 50)
    assert [len(phase) for phase in data.scenario.phases] == [25, 5, 5, 5, 5, 5]
    used = [row.tobytes() for row in (*samples.train.x, *samples.test.x)]
    assert len(set(used)) == len(used) == 1000  # no row twice: what is held out is not learned
    assert set(used) == {row.tobytes() for row in sample.train_x[sample.train_y < 50]}


def test_base_classes_may_be_any(sample: FeatureSet) -> None:
    generic = replace(sample, backbone={**sample.backbone, "seen_classes": None})
    setting = settle(Experiment(phases=10, class_order="1993"), generic)
    samples = base_tuning_data(setting).samples
    used = {row.tobytes() for row in (*samples.train.x, *samples.test.x)}
    assert used == {row.tobytes() for row in sample.train_x[np.isin(sample.train_y, setting.scenario.labels(0))]}


def test_neither_test_data_nor_later_classes_take_part(sample: FeatureSet) -> None:
    experiment = Experiment(method="acil", options={"expansion_size": 16}, phases=10)
    later = sample.train_y >= 50
    other = replace(
        sample, train_x=np.where(later[:, None], np.float32(9.0), sample.train_x), test_x=np.zeros_like(sample.test_x)
    )
    first, second = (list(tune(experiment, base_tuning_data(settle(experiment, data)))) for data in (sample, other))
    assert first == second
    assert len(first) == len(METHODS.get("acil").trials)


def test_a_proxy_is_dealt_by_what_its_backbone_has_seen(sample: FeatureSet) -> None:
    data = proxy_tuning_data(sample)
    assert [len(phase) for phase in data.scenario.phases] == [50, 10, 10, 10, 10, 10]
    trials = list(tune(Experiment(method="ncm"), data))
    assert 55 < best(trials).accuracy < 70  # the test part is what it says, not the training part
    with pytest.raises(LeakError):
        proxy_tuning_data(replace(sample, backbone={**sample.backbone, "seen_classes": [0, 1, 99]}))


def test_of_equals_the_first_wins() -> None:
    trials = [Trial({"gamma": 0.1}, 70.0), Trial({"gamma": 1.0}, 71.0), Trial({"gamma": 10.0}, 71.0)]
    assert best(trials) is trials[1]


@pytest.mark.parametrize(("base", "sizes"), [(1, [1]), (2, [1, 1]), (7, [4, 1, 1, 1])])
def test_few_base_classes_make_few_phases(base: int, sizes: list[int], sample: FeatureSet) -> None:
    generic = replace(sample, backbone={**sample.backbone, "seen_classes": None})
    data = base_tuning_data(settle(Experiment(phases=3, base_classes=base), generic))
    assert [len(phase) for phase in data.scenario.phases] == sizes
