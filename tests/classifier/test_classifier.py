"""The scikit-learn face: what is learned, answered, merged and forgotten."""

from __future__ import annotations

import pickle
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks
from tests.oracle import Array, Joint, PaperDSAL, Rows, joint_weights, one_hot, relu
from torch.utils.data import DataLoader, TensorDataset

from dsal import DSALClassifier
from dsal.errors import InputError, MemoryNeededError


@parametrize_with_checks([DSALClassifier(expansion_size=64)])  # none is expected to fail
def test_scikit_learns_own_checks(estimator: DSALClassifier, check: Any) -> None:
    check(estimator)


def learn(model: DSALClassifier, rows: Rows, edges: list[int]) -> DSALClassifier:
    for start, stop in pairwise(edges):
        model.partial_fit(*rows.phase(start, stop))
    return model


@pytest.fixture(scope="module")
def model(rows: Rows) -> DSALClassifier:
    """Three phases; tests that change it take a copy."""
    return learn(DSALClassifier(expansion_size=128), rows, [0, 50, 70, 100])


def copy(model: DSALClassifier) -> DSALClassifier:
    return pickle.loads(pickle.dumps(model))  # type: ignore[no-any-return]


def test_one_phase_at_2048_is_the_joint_solve(rows: Rows, joint: Joint) -> None:
    model = learn(DSALClassifier(expansion_size=2048, compensation=None), rows, [0, 50, 90, 100])
    difference = model.coef_main_ - joint.weights
    assert np.linalg.norm(difference) <= 1e-8 * np.linalg.norm(joint.weights)
    assert np.abs(model.logits(rows.new) - joint.new @ joint.weights).max() <= 1e-9


def test_the_papers_equations_through_the_front_door(rows: Rows) -> None:
    model = DSALClassifier(expansion_size=256, gamma=0.2, gamma_comp=0.5, random_state=3)
    edges = [0, 50, 51, 75, 100]
    learn(model, rows, edges)
    paper = PaperDSAL(model.projection_, 0.2, 0.5)
    for start, stop in pairwise(edges):
        paper.learn(*rows.phase(start, stop))
    assert np.abs(model.logits(rows.new) - paper.logits(rows.new, 0.6)).max() <= 1e-8
    np.testing.assert_allclose(model.coef_comp_, paper.w_comp, atol=1e-9)
    model.set_params(compensation=1.1)
    assert np.abs(model.logits(rows.new) - paper.logits(rows.new, 1.1)).max() <= 1e-8
    model.compensation = 0
    assert np.abs(model.logits(rows.new) - paper.logits(rows.new, 0.0)).max() <= 1e-8


def test_learned_attributes(model: DSALClassifier) -> None:
    assert model.classes_.tolist() == list(range(100))
    assert (model.n_features_in_, model.n_phases_) == (64, 3)
    assert model.projection_.shape == (64, 128)
    assert model.coef_main_.shape == (128, 100)
    assert model.coef_comp_ is not None
    assert model.coef_comp_.shape == (128, 100)
    unfitted = DSALClassifier()
    assert not hasattr(unfitted, "classes_")
    assert not hasattr(unfitted, "coef_main_")


def test_new_classes_are_appended_sorted_within_a_call(rows: Rows) -> None:
    names = np.array([f"class {99 - label:02d}" for label in rows.y])
    half = rows.y % 2 == 0
    model = DSALClassifier(expansion_size=16).partial_fit(rows.x[half], names[half])
    model.partial_fit(rows.x, names)
    assert model.classes_.tolist() == sorted(set(names[half])) + sorted(set(names[~half]))
    assert DSALClassifier(expansion_size=16).fit(rows.x, names).classes_.tolist() == sorted(set(names))


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ([3, 1], [2, 7]),
        (["b", "a"], ["dromedary", "c"]),
        ([2.0, 1.0], [5.0, 3.0]),
        ([False, False], [True, True]),
        (np.array(["x", "y"], dtype=object), np.array(["zebra", "x"], dtype=object)),
        (np.array([1, 2], dtype=np.uint8), np.array([300, 1], dtype=np.int16)),
        (torch.tensor([1, 2]), torch.tensor([5, 1], dtype=torch.int32)),
    ],
)
def test_labels_of_any_one_kind(first: Any, second: Any) -> None:
    x = np.random.default_rng(0).standard_normal((2, 8))
    model = DSALClassifier(expansion_size=256, compensation=0, gamma=1e-3).partial_fit(x, first)
    assert model.partial_fit(-x, second).predict(-x).tolist() == list(np.asarray(second))
    assert model.predict(x).tolist() == list(np.asarray(first))


@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_any_split_into_phases_keeps_the_main_stream(data: st.DataObject) -> None:
    """Over shapes, label kinds, weights, batch sizes, order of rows and classes that come back."""
    n, features, size = data.draw(st.integers(2, 30)), data.draw(st.integers(1, 4)), data.draw(st.integers(1, 20))
    random = np.random.default_rng(data.draw(st.integers(0, 99)))
    x = random.standard_normal((n, features)).astype(data.draw(st.sampled_from([np.float32, np.float64])))
    numbers = random.integers(0, 4, n)
    labels = numbers if data.draw(st.booleans()) else np.array(["ant", "bee", "cow", "dog"])[numbers]
    weight = random.integers(0, 4, n)
    weight[:1] = 1
    model = DSALClassifier(expansion_size=size, gamma=0.5)
    for phase in np.split(random.permutation(n), sorted(data.draw(st.lists(st.integers(1, n - 1), max_size=3)))):
        if not weight[phase].any():
            with pytest.raises(InputError, match=r"empty|0 sample"):
                model.partial_fit(x[phase], labels[phase], sample_weight=weight[phase])
        elif data.draw(st.booleans()):
            model.partial_fit(x[phase], labels[phase], sample_weight=weight[phase])
        else:
            step = data.draw(st.integers(1, n))
            parts = [phase[i : i + step] for i in range(0, len(phase), step)]
            model.partial_fit([(x[part], labels[part], weight[part]) for part in parts])
    repeated = np.repeat(np.arange(n), weight)
    expanded = relu(x[repeated].astype(np.float64) @ model.projection_)
    columns = [model.classes_.tolist().index(label) for label in labels[repeated].tolist()]
    expected = joint_weights(expanded, one_hot(np.array(columns), len(model.classes_)), 0.5)
    np.testing.assert_allclose(model.coef_main_, expected, atol=1e-9)


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 99), n=st.integers(2, 60))
def test_integer_weights_are_repeated_rows_in_everything(seed: int, n: int) -> None:
    """Both streams, and the temperature of the probabilities."""
    random = np.random.default_rng(seed)
    x, y, weight = random.standard_normal((n, 3)), random.integers(0, 3, n), random.integers(1, 4, n)
    weighted = DSALClassifier(expansion_size=16).fit(x, y, sample_weight=weight)
    order = random.permutation(weight.sum())
    repeated = DSALClassifier(expansion_size=16).fit(np.repeat(x, weight, 0)[order], np.repeat(y, weight)[order])
    np.testing.assert_allclose(weighted.logits(x), repeated.logits(x), atol=1e-9)
    np.testing.assert_allclose(weighted.predict_proba(x), repeated.predict_proba(x), atol=1e-6)


def test_batches_of_any_size_learn_the_same_bits(rows: Rows) -> None:
    data = TensorDataset(torch.tensor(rows.x), torch.tensor(rows.y))
    whole = DSALClassifier(expansion_size=256).fit(rows.x, rows.y)
    for batch_size in (7, 1000):
        model = DSALClassifier(expansion_size=256).fit(DataLoader(data, batch_size=batch_size))
        assert np.array_equal(model.logits(rows.new), whole.logits(rows.new))
    shuffled = DSALClassifier(expansion_size=256).fit(DataLoader(data, batch_size=64, shuffle=True))
    assert np.abs(shuffled.logits(rows.new) - whole.logits(rows.new)).max() < 1e-9
    assert shuffled.predict_proba(rows.new) == pytest.approx(whole.predict_proba(rows.new), abs=1e-6)


def test_answers_agree_with_each_other(model: DSALClassifier, rows: Rows) -> None:
    logits = model.logits(rows.new)
    assert logits.shape == (400, 100)
    assert np.array_equal(model.decision_function(rows.new), logits)
    predicted = model.predict(rows.new)
    assert np.array_equal(predicted, model.classes_[logits.argmax(1)])
    labels, values = model.top_k(rows.new, 3)
    assert labels.shape == values.shape == (400, 3)
    assert np.array_equal(labels[:, 0], predicted)
    np.testing.assert_array_equal(values, -np.sort(-logits, axis=1)[:, :3])
    assert model.score(rows.new, rows.new_y) == (predicted == rows.new_y).mean() > 0.4
    probabilities = model.predict_proba(rows.new)
    np.testing.assert_allclose(probabilities.sum(1), 1.0)
    assert np.array_equal(probabilities.argmax(1), logits.argmax(1))
    with pytest.raises(InputError, match="between 1 and the number of classes"):
        model.top_k(rows.new, 101)


def test_scikit_learns_shapes_for_two_classes_and_for_one(rows: Rows) -> None:
    two = DSALClassifier(expansion_size=64).fit(*rows.phase(0, 2))
    logits = two.logits(rows.new)
    assert logits.shape == (400, 2)
    np.testing.assert_array_equal(two.decision_function(rows.new), logits[:, 1] - logits[:, 0])
    one = DSALClassifier(expansion_size=64).fit(*rows.phase(0, 1))
    assert one.logits(rows.new).shape == (400, 1)
    assert set(one.predict(rows.new)) == {0}
    np.testing.assert_allclose(one.predict_proba(rows.new), 1.0)
    assert one.partial_fit(*rows.phase(1, 100)).score(rows.new, rows.new_y) > 0.3


def test_torch_in_torch_out(model: DSALClassifier, rows: Rows) -> None:
    x = torch.tensor(rows.new, dtype=torch.float32)
    expected = rows.new.astype(np.float32)
    for method in ("predict", "logits", "decision_function", "predict_proba"):
        answer = getattr(model, method)(x)
        assert isinstance(answer, torch.Tensor)
        assert np.array_equal(answer.numpy(), getattr(model, method)(expected))
    assert all(isinstance(part, torch.Tensor) for part in model.top_k(x, 2))
    assert model.score(x, torch.tensor(rows.new_y)) == model.score(expected, rows.new_y)
    named = DSALClassifier(expansion_size=8).fit(torch.tensor(rows.x), rows.y.astype(str))
    assert isinstance(named.predict(x), np.ndarray)
    assert isinstance(named.logits(x), torch.Tensor)


def test_half_precision_and_integers_are_features_too(rows: Rows) -> None:
    half = torch.tensor(rows.x).bfloat16()
    model = DSALClassifier(expansion_size=16).fit(half, rows.y)
    assert np.array_equal(model.logits(half), model.logits(half.double()))
    digits = load_digits(return_X_y=True)
    counted = DSALClassifier(expansion_size=64, gamma=10).fit(digits[0].astype(np.int32), digits[1])
    assert counted.score(*digits) > 0.9


def test_float32_answers_to_six_digits(model: DSALClassifier, rows: Rows) -> None:
    logits = model.logits(rows.new, dtype="float32")
    assert logits.dtype == np.float32
    assert model.logits(torch.tensor(rows.new), dtype=torch.float32).dtype == torch.float32
    assert 0 < np.abs(logits - model.logits(rows.new)).max() < 1e-4
    assert model.projection_.dtype == np.float64  # the model itself keeps its precision
    with pytest.raises(InputError, match="float64 or float32"):
        model.logits(rows.new, dtype="float16")


def negative_log_likelihood(probabilities: Array, y: NDArray[np.int64]) -> float:
    return float(-np.log(probabilities[np.arange(len(y)), y]).mean())


def test_probabilities_are_calibrated_on_rows_never_seen(rows: Rows) -> None:
    """The temperature from leave-one-out logits is near the best there is for new rows; that of learned rows is not."""
    model = learn(DSALClassifier(expansion_size=512), rows, [0, 50, 70, 100])

    def losses(x: Array, y: NDArray[np.int64]) -> Array:
        scaled = [np.exp(model.logits(x) / t) for t in grid]
        return np.array([negative_log_likelihood(e / e.sum(1, keepdims=True), y) for e in scaled])

    grid = np.logspace(-1.7, -0.3, 20)
    for_new, for_learned = losses(rows.new, rows.new_y), losses(rows.x[::5], rows.y[::5])
    got = negative_log_likelihood(model.predict_proba(rows.new), rows.new_y)
    assert got < for_new.min() + 0.1
    assert for_new[for_learned.argmin()] > for_new.min() + 0.2


def test_leave_one_out_score_foretells_the_test_score(rows: Rows) -> None:
    model = DSALClassifier(expansion_size=256, compensation=0).fit(rows.x, rows.y)
    assert model.loo_logits(rows.x, rows.y).shape == (2600, 100)
    assert model.loo_score(rows.x, rows.y) == pytest.approx(model.score(rows.new, rows.new_y), abs=0.06)
    assert model.score(rows.x, rows.y) > model.loo_score(rows.x, rows.y) + 0.1
    without = DSALClassifier(expansion_size=256, compensation=0).fit(np.delete(rows.x, 7, 0), np.delete(rows.y, 7))
    np.testing.assert_allclose(model.loo_logits(rows.x[7:8], rows.y[7:8]), without.logits(rows.x[7:8]), atol=1e-9)


def test_merged_is_pooled_in_the_main_stream(rows: Rows) -> None:
    model = DSALClassifier(expansion_size=256, compensation=0)
    pooled = clone(model).fit(rows.x, rows.y)
    left = clone(model).partial_fit(*rows.phase(20, 60)).partial_fit(*rows.phase(60, 100))
    right = clone(model).partial_fit(*rows.phase(0, 20))
    before = right.logits(rows.new)
    assert left.merge(right) is left
    assert (left.classes_.tolist(), left.n_phases_) == ([*range(20, 100), *range(20)], 3)
    order = np.argsort(left.classes_)
    np.testing.assert_allclose(left.logits(rows.new)[:, order], pooled.logits(rows.new), atol=1e-9)
    assert np.array_equal(right.logits(rows.new), before)
    left.partial_fit(*rows.phase(3, 5))  # and goes on


def test_only_fitted_models_merge(rows: Rows) -> None:
    fitted, unfitted = DSALClassifier(expansion_size=16).fit(*rows.phase(0, 3)), DSALClassifier(expansion_size=16)
    for one, other in ((fitted, unfitted), (unfitted, fitted)):
        with pytest.raises(NotFittedError):
            one.merge(other)


def test_only_like_models_merge(rows: Rows) -> None:
    x, y = rows.phase(0, 3)
    model = DSALClassifier(expansion_size=16).fit(x, y)
    unlike = {
        "equal expansions": DSALClassifier(expansion_size=16, random_state=1).fit(x, y),
        "equal activation": DSALClassifier(expansion_size=16, activation="mish").fit(x, y),
        "compensation=None": DSALClassifier(expansion_size=16, compensation=None).fit(x, y),
        "mix types": DSALClassifier(expansion_size=16).fit(x, y.astype(str)),
        "with itself": model,
    }
    before = pickle.dumps(model)
    for message, other in unlike.items():
        with pytest.raises(InputError, match=message):
            model.merge(other)
    assert pickle.dumps(model) == before


def test_forgotten_is_never_seen_in_the_main_stream(rows: Rows) -> None:
    model = learn(DSALClassifier(expansion_size=256), rows, [0, 50, 100])
    gone = (rows.y == 7) | ((rows.y == 60) & (np.arange(2600) % 2 == 0))
    assert model.forget(rows.x[gone], rows.y[gone]) is model
    assert model.compensation == 0.0
    assert model.classes_.tolist() == [label for label in range(100) if label != 7]
    expected = DSALClassifier(expansion_size=256, compensation=0).fit(rows.x[~gone], rows.y[~gone])
    np.testing.assert_allclose(model.logits(rows.new), expected.logits(rows.new), atol=1e-9)
    model.partial_fit(*rows.phase(7, 8))  # comes back as the newest
    assert model.classes_[-1] == 7


def test_forgetting_can_keep_the_compensation(rows: Rows) -> None:
    model = learn(DSALClassifier(expansion_size=64), rows, [0, 100])
    weights = model.coef_comp_
    model.forget(*rows.phase(99, 100), keep_compensation=True)
    assert model.compensation == 0.6
    assert weights is not None
    np.testing.assert_allclose(model.coef_comp_, weights[:, :99], rtol=1e-12)


def test_weighted_rows_are_forgotten_by_weight(rows: Rows) -> None:
    x, y = rows.phase(0, 2)
    model = DSALClassifier(expansion_size=32, compensation=None).fit(x, y, sample_weight=np.full(len(x), 0.3))
    model.forget(x, y, sample_weight=np.where(y == 0, 0.1, 0.3))
    assert model.classes_.tolist() == [0]
    expected = DSALClassifier(expansion_size=32, compensation=None).fit(x[y == 0], y[y == 0], np.full(26, 0.2))
    np.testing.assert_allclose(model.logits(x), expected.logits(x), atol=1e-9)


def test_the_gaussian_kernel_is_a_joint_solve_too(rows: Rows) -> None:
    model = DSALClassifier(expansion_size=100, expansion="gaussian", gamma=0.01, compensation=0)
    learn(model, rows, [0, 50, 100])
    centres = model.projection_.T
    in_first_phase = {row.tobytes() for row in rows.phase(0, 50)[0]}
    assert all(centre.tobytes() in in_first_phase for centre in centres)
    width = model._learner.built().get_buffer("width").item()

    def expanded(x: Array) -> Array:
        return np.exp(-(np.linalg.norm(x[:, None] - centres[None], axis=2) ** 2) / (2 * width**2))

    weights = joint_weights(expanded(rows.x), one_hot(rows.y, 100), 0.01)
    np.testing.assert_allclose(model.logits(rows.new), expanded(rows.new) @ weights, atol=1e-9)
    again = clone(model).fit([(rows.x[2000:], rows.y[2000:]), (rows.x[:2000], rows.y[:2000])])
    assert not np.array_equal(again.projection_, model.projection_)  # another first phase
    shuffled = np.random.default_rng(0).permutation(1300)
    first = rows.phase(0, 50)
    again = clone(model).fit(first[0][shuffled], first[1][shuffled])
    assert np.array_equal(again.projection_, model.projection_)  # the same rows in another order


def test_activations_of_ones_own(rows: Rows) -> None:
    named = DSALClassifier(expansion_size=32, activation="sigmoid").fit(rows.x, rows.y)
    own = DSALClassifier(expansion_size=32, activation=lambda z: 1 / (1 + torch.exp(-z))).fit(rows.x, rows.y)
    np.testing.assert_allclose(named.logits(rows.new), own.logits(rows.new), atol=1e-9)


def test_classes_make_room(rows: Rows) -> None:
    model = DSALClassifier(expansion_size=32).partial_fit(*rows.phase(3, 5), classes=[1, 3, 4, 9])
    assert model.classes_.tolist() == [1, 3, 4, 9]
    assert np.array_equal(model.coef_main_[:, [0, 3]], np.zeros((32, 2)))
    with pytest.raises(InputError, match=r"not among `classes`: \[5\]"):
        model.partial_fit(*rows.phase(4, 6), classes=[4])
    model.partial_fit(*rows.phase(1, 5), classes=[1, 2])  # 3 and 4 are known
    assert model.classes_.tolist() == [1, 3, 4, 9, 2]


def test_what_was_learned_stays_as_it_was_learned(rows: Rows) -> None:
    x, y = rows.phase(0, 5)
    model = DSALClassifier(expansion_size=32).fit(x, y)
    before = model.logits(x)
    model.set_params(gamma=5.0, activation="mish")
    assert np.array_equal(model.logits(x), before)
    with pytest.raises(InputError, match="activation, gamma cannot change once learning has begun"):
        model.partial_fit(x, y)
    model.fit(x, y)
    assert not np.allclose(model.logits(x), before)
    alone = DSALClassifier(expansion_size=32, compensation=None).fit(x, y)
    assert alone.coef_comp_ is None
    alone.compensation = 0.5
    with pytest.raises(InputError, match="has no compensation stream"):
        alone.predict(x)


def test_random_states_of_all_sorts(rows: Rows) -> None:
    x, y = rows.phase(0, 2)
    for make in (
        lambda: np.random.RandomState(5),
        lambda: np.random.default_rng(5),
        lambda: torch.Generator().manual_seed(5),
        lambda: np.int64(5),
    ):
        one, other = (DSALClassifier(expansion_size=8, random_state=make()).fit(x, y) for _ in range(2))
        assert np.array_equal(one.projection_, other.projection_)
    one, other = (DSALClassifier(expansion_size=8, random_state=None).fit(x, y) for _ in range(2))
    assert not np.array_equal(one.projection_, other.projection_)


def test_condition_can_be_asked_for(model: DSALClassifier, rows: Rows) -> None:
    main, comp = model.condition()
    expanded = relu(rows.x @ model.projection_)
    true = np.linalg.cond(expanded.T @ expanded + 0.1 * np.eye(128), 1)
    assert true / 3 < main <= 1.01 * true
    assert comp is not None
    assert comp > 1


def test_more_than_fits_is_refused_before_it_is_tried(rows: Rows) -> None:
    model = DSALClassifier(expansion_size=3_000_000)
    with pytest.raises(MemoryNeededError, match="expansion_size=3000000"):
        model.fit(rows.x[:2, :1], rows.y[:2])
    assert not hasattr(model, "n_features_in_")


def test_a_good_citizen_of_scikit_learn() -> None:
    x, y = load_digits(return_X_y=True)
    scores = cross_val_score(make_pipeline(StandardScaler(), DSALClassifier(expansion_size=256)), x, y, cv=3)
    assert scores.mean() > 0.93


def test_a_renamed_class_is_the_same_class(rows: Rows) -> None:
    model, renamed = (DSALClassifier(expansion_size=64).fit(rows.x, rows.y.astype(str)) for _ in range(2))
    renamed.rename_class("7", "seventh of its name")
    assert renamed.classes_.tolist() == [{"7": "seventh of its name"}.get(c, c) for c in model.classes_.tolist()]
    assert np.array_equal(renamed.logits(rows.new), model.logits(rows.new))
    for each, label in ((model, "7"), (renamed, "seventh of its name")):  # and it learns on under its new name
        each.partial_fit(rows.x[:20], np.full(20, label))
    assert np.array_equal(renamed.logits(rows.new), model.logits(rows.new))
    for old, new, message in (("7", "x", "never learned"), ("8", "9", "already"), ("8", 9, "mix types")):
        with pytest.raises(InputError, match=message):
            renamed.rename_class(old, new)


def test_a_dropped_class_is_never_answered_and_its_rows_stay_examples_of_none(rows: Rows) -> None:
    """The other columns are those of a joint solve in which the rows of the class have the target zero."""
    model = DSALClassifier(expansion_size=64, compensation=0)
    learn(model, rows, [0, 50, 100])
    others = model.classes_ != 3
    before = model.logits(rows.new)
    model.drop_class(3)
    assert 3 not in model.classes_
    np.testing.assert_allclose(model.logits(rows.new), before[:, others], atol=1e-12)
    targets = one_hot(rows.y, 100)[:, others]
    weights = joint_weights(relu(rows.x @ model.projection_), targets, model.gamma_)
    np.testing.assert_allclose(model.coef_main_, weights, atol=1e-8)
    for label, message in ((3, "never learned"), (1000, "never learned")):
        with pytest.raises(InputError, match=message):
            model.drop_class(label)
    with pytest.raises(InputError, match="only class"):
        DSALClassifier(expansion_size=8).fit(rows.x[:5], np.zeros(5, dtype=int)).drop_class(0)


def test_steps_that_belong_together_roll_back_together(rows: Rows) -> None:
    model = DSALClassifier(expansion_size=64).fit(*rows.phase(0, 50))
    before, expected = pickle.dumps(model.get_params()), model.logits(rows.new)

    def learn_then_fail() -> None:
        with model.rollback():
            model.partial_fit(*rows.phase(50, 60))
            model.drop_class(2)
            raise OSError("the disk is full")

    with pytest.raises(OSError, match="the disk is full"):
        learn_then_fail()
    assert pickle.dumps(model.get_params()) == before
    assert np.array_equal(model.logits(rows.new), expected)
    assert len(model.classes_) == 50
    assert np.array_equal(
        model.partial_fit(*rows.phase(50, 60)).logits(rows.new),
        DSALClassifier(expansion_size=64).fit(*rows.phase(0, 50)).partial_fit(*rows.phase(50, 60)).logits(rows.new),
    )


def test_the_labels_predicted_are_those_of_the_largest_logits(rows: Rows) -> None:
    """Also where the answer is found in float32 first."""
    model = DSALClassifier(expansion_size=256).fit(rows.x, rows.y)
    assert np.array_equal(model.predict(rows.new), model.classes_[model.logits(rows.new).argmax(1)])


def test_declared_classes_are_sorted_and_counted_once(rows: Rows) -> None:
    x, y = rows.phase(0, 3)
    model = DSALClassifier(expansion_size=16).partial_fit(x, y, classes=[5, 2, 0, 5, 1, 2])
    assert model.classes_.tolist() == [0, 1, 2, 5]
    model.partial_fit(*rows.phase(7, 8), classes=np.array([9, 7, 7, 0]))
    assert model.classes_.tolist() == [0, 1, 2, 5, 7, 9]
    assert model.coef_main_.shape == (16, 6)
    assert not model.coef_main_[:, [3, 5]].any()
