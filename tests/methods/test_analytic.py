"""DS-AL and ACIL against the definitions."""

from typing import Any

import numpy as np
import pytest

from dsal import DSALClassifier
from dsal.data import Scenario
from dsal.data.features.feature_set import FeatureSet
from dsal.errors import FileFormatError, InputError, UnknownNameError
from dsal.methods.closed_form.ds_al import ACIL, DSAL
from dsal.methods.contract import Method


def learn(method: Method, sample: FeatureSet, phases: int) -> Method:
    scenario = Scenario.deal(100, phases=phases)
    for k, classes in enumerate(scenario.phases):
        rows = scenario.phase_rows(sample.train_y, k)
        method.learn_rows(sample.train_x[rows], sample.train_y[rows], classes)
    return method


def test_acil_is_ridge_regression_on_everything(sample: FeatureSet) -> None:
    method = learn(ACIL(expansion_size=256, gamma=1.0, seed=3), sample, phases=7)
    bound = 1 / np.sqrt(64)
    projection = np.random.RandomState(3).uniform(-bound, bound, (64, 256))
    x = np.maximum(sample.train_x.astype(np.float64) @ projection, 0)
    weights = np.linalg.solve(x.T @ x + np.eye(256), x.T @ np.eye(100)[sample.train_y])
    expected = np.maximum(sample.test_x.astype(np.float64) @ projection, 0) @ weights
    np.testing.assert_allclose(method.scores(sample.test_x), expected, atol=1e-9)


def test_ds_al_without_compensation_is_acil(sample: FeatureSet) -> None:
    acil = learn(ACIL(expansion_size=128), sample, phases=5)
    ds_al = learn(DSAL(expansion_size=128, compensation=0.0), sample, phases=5)
    np.testing.assert_array_equal(acil.scores(sample.test_x), ds_al.scores(sample.test_x))
    assert acil.state().nbytes < 0.6 * learn(DSAL(expansion_size=128), sample, phases=5).state().nbytes


def test_compensation_scales_the_second_stream(sample: FeatureSet) -> None:
    none, some, more = (
        learn(DSAL(expansion_size=128, compensation=c), sample, phases=5).scores(sample.test_x) for c in (0.0, 0.5, 1.0)
    )
    assert np.abs(some - none).max() > 1e-3
    np.testing.assert_allclose(more - none, 2 * (some - none), atol=1e-12)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"cleanse": False, "main_activation": "gelu", "activation": "mish"},
        {"gamma": "auto", "gamma_comp": "auto"},
        {"expansion": "gaussian", "gamma": 0.01},
    ],
)
def test_the_method_and_the_classifier_are_one_learner(options: dict[str, Any], sample: FeatureSet) -> None:
    """To the bit, with every option: the choice of centres and of gamma included."""
    method = learn(DSAL(expansion_size=64, seed=2, **options), sample, phases=2)
    classifier = DSALClassifier(expansion_size=64, random_state=2, **options)
    scenario = Scenario.deal(100, phases=2)
    for k in range(3):
        rows = scenario.phase_rows(sample.train_y, k)
        classifier.partial_fit(sample.train_x[rows], sample.train_y[rows])
    assert np.array_equal(method.scores(sample.test_x), classifier.logits(sample.test_x))
    restored = DSAL.from_state(method.state())
    assert np.array_equal(restored.scores(sample.test_x), method.scores(sample.test_x))


def test_c_can_be_left_to_the_method(sample: FeatureSet) -> None:
    method = learn(DSAL(expansion_size=64, compensation="auto"), sample, phases=3)
    chosen = method._learner.strength("auto")
    given = learn(DSAL(expansion_size=64, compensation=chosen), sample, phases=3)
    assert 0 < chosen != DSAL().compensation
    assert np.array_equal(method.scores(sample.test_x), given.scores(sample.test_x))
    assert DSAL.from_state(method.state())._learner.strength("auto") == chosen


def test_centres_taken_from_samples_are_owned_up_to() -> None:
    assert DSAL(expansion="random").exemplar_free
    assert not DSAL(expansion="gaussian").exemplar_free


@pytest.mark.parametrize(
    "options", [{"gamma": 0.0}, {"gamma_comp": -1.0}, {"expansion_size": 0}, {"compensation": -0.1}]
)
def test_options_out_of_range_are_refused(options: dict[str, float]) -> None:
    with pytest.raises(InputError):
        DSAL(**options)


def test_misspelt_names_are_answered() -> None:
    with pytest.raises(UnknownNameError, match="tanh"):
        DSAL(activation="tahn")
    with pytest.raises(UnknownNameError, match="random"):
        ACIL(expansion="radnom")


def test_the_state_of_another_method_is_refused(tmp_path, sample: FeatureSet) -> None:
    ACIL(expansion_size=16).save(tmp_path / "state")
    with pytest.raises(FileFormatError, match="ACIL"):
        DSAL.load(tmp_path / "state")
