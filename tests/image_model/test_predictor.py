"""The predictor of Python, command line and server: the formula, and answers that do not depend on the batch."""

import numpy as np
import pytest
from scipy.special import softmax

from dsal import DSALClassifier
from dsal.image_model.learned_state import LearnedState
from dsal.image_model.predictor import LightHead


def taught(classes: int, **options: object) -> LearnedState:
    random = np.random.default_rng(classes)
    y = np.array([f"class {number}" for number in range(classes)]).repeat(6)
    x = (random.standard_normal((classes, 40)).repeat(6, axis=0) + random.standard_normal((len(y), 40))).astype("f")
    state = LearnedState(DSALClassifier(expansion_size=96, **options), 40)
    state.learn(x, y, [None] * len(y))
    return state


@pytest.mark.parametrize("options", [{}, {"compensation": None}, {"activation": "mish"}, {"expansion": "gaussian"}])
def test_equals_the_classifier_in_float64(options: dict[str, object]) -> None:
    """Both streams, probabilities and novelty; other activations and expansions by PyTorch."""
    state = taught(20, **options)
    x = np.random.default_rng(0).standard_normal((19, 40)).astype("f")
    predictor = state.predictor()
    assert isinstance(predictor.head, LightHead) == (options in ({}, {"compensation": None}))
    found, expected = predictor.scores(x), state.classifier.logits(x)
    np.testing.assert_allclose(found.logits, expected, atol=1e-5)
    temperature = state.classifier._calibration.temperature
    np.testing.assert_allclose(found.probabilities, softmax(expected / temperature, axis=1), atol=1e-4)
    main = state._main_stream().logits(x).max(1)
    np.testing.assert_allclose(found.novelty, state.reference.novelty(main, state.statistics.distances(x)), atol=1e-3)


@pytest.mark.parametrize("classes", [2, 3, 7, 10, 50])
def test_an_image_is_answered_alike_alone_and_in_any_batch(classes: int) -> None:
    predictor = taught(classes).predictor()
    random = np.random.default_rng(0)
    x = random.standard_normal((29, 40)).astype("f")
    whole = predictor.scores(x)
    for rows in ([0], [28], [3, 1], list(range(20, 5, -1)), random.permutation(29).tolist()):
        for part, expected in zip(predictor.scores(x[rows]), whole.take(rows), strict=True):
            assert np.array_equal(part, expected)


def test_a_predictor_is_not_affected_by_later_lessons() -> None:
    state = taught(5)
    x = np.random.default_rng(0).standard_normal((8, 40)).astype("f")
    predictor = state.predictor()
    before = predictor.scores(x)
    state.learn(x, np.array(["new"] * 8), [None] * 8)
    assert all(np.array_equal(a, b) for a, b in zip(before, predictor.scores(x), strict=True))
    assert state.predictor().scores(x).logits.shape == (8, 6)
