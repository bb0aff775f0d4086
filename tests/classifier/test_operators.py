"""Models add and subtract: ``a + b`` merges, ``a - b`` unlearns."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from sklearn.base import clone
from tests.oracle import Rows

from dsal import DSALClassifier
from dsal.errors import InputError

MODEL = DSALClassifier(expansion_size=128)


@pytest.fixture(scope="module")
def left(rows: Rows) -> DSALClassifier:
    return clone(MODEL).partial_fit(*rows.phase(0, 20)).partial_fit(*rows.phase(20, 30))  # type: ignore[no-any-return]


@pytest.fixture(scope="module")
def right(rows: Rows) -> DSALClassifier:
    return clone(MODEL).partial_fit(*rows.phase(10, 40))  # type: ignore[no-any-return]


def test_a_sum_is_a_merge_and_leaves_both_unchanged(left: DSALClassifier, right: DSALClassifier, rows: Rows) -> None:
    before = pickle.dumps((left, right))
    total = left + right
    assert pickle.dumps((left, right)) == before
    merged = pickle.loads(pickle.dumps(left)).merge(right)
    assert np.array_equal(total.logits(rows.new), merged.logits(rows.new))
    other = right + left
    np.testing.assert_allclose(
        total.logits(rows.new), other.logits(rows.new)[:, np.argsort(other.classes_)], atol=1e-9
    )  # in any order, in both streams


def test_what_was_added_can_be_subtracted_in_both_streams(
    left: DSALClassifier, right: DSALClassifier, rows: Rows
) -> None:
    total = left + right
    alone = total - right
    assert total.n_phases_ == 3
    assert (alone.compensation, alone.coef_comp_, total.compensation) == (0.0, None, 0.6)
    again = total.unmerge(right, keep_compensation=True)  # exact here, as it was merged and nothing was learned since
    assert again.classes_.tolist() == left.classes_.tolist()  # classes that only the other had are gone
    np.testing.assert_allclose(again.logits(rows.new), left.logits(rows.new), atol=1e-8)
    again.partial_fit(*rows.phase(30, 33))
    assert again.classes_.tolist() == [*range(33)]


def test_rows_learned_here_are_unlearned_by_a_model_of_them(rows: Rows) -> None:
    x, y = rows.phase(0, 40)
    gone = (y >= 35) | (np.arange(len(y)) % 3 == 0)
    model = clone(MODEL).partial_fit(*rows.phase(0, 20)).partial_fit(*rows.phase(20, 40))
    taken = clone(MODEL).fit(x[gone], y[gone])
    never = clone(MODEL).set_params(compensation=0).fit(x[~gone], y[~gone])
    np.testing.assert_allclose((model - taken).logits(rows.new), never.logits(rows.new), atol=1e-8)
    model -= taken
    np.testing.assert_allclose(model.logits(rows.new), never.logits(rows.new), atol=1e-8)
    model += taken
    whole = clone(never).fit(x, y)
    order = np.argsort(model.classes_)
    np.testing.assert_allclose(model.logits(rows.new)[:, order], whole.logits(rows.new), atol=1e-8)


def test_other_penalties_are_counted_once(rows: Rows) -> None:
    model, other = clone(MODEL).fit(*rows.phase(0, 20)), clone(MODEL).set_params(gamma=3.0).fit(*rows.phase(0, 5))
    kept = model.coef_main_.copy()
    np.testing.assert_allclose((model + other - other).coef_main_, kept, atol=1e-9)


def test_what_was_never_learned_cannot_be_subtracted(left: DSALClassifier, right: DSALClassifier, rows: Rows) -> None:
    before = pickle.dumps(left)
    with pytest.raises(InputError, match="never learned"):
        left - right
    with pytest.raises(InputError, match="more rows to forget than were learned"):
        left - (left + left.__class__(expansion_size=128).fit(*rows.phase(0, 5)))
    with pytest.raises(InputError, match="every row"):
        left - pickle.loads(pickle.dumps(left))
    with pytest.raises(InputError, match="its rows were never learned here"):
        left - clone(MODEL).fit(100 * rows.phase(0, 5)[0], rows.phase(0, 5)[1])
    with pytest.raises(InputError, match="equal expansions"):
        left - clone(MODEL).set_params(random_state=1).fit(*rows.phase(0, 5))
    assert pickle.dumps(left) == before


def test_only_models_add(left: DSALClassifier) -> None:
    with pytest.raises(TypeError, match="unsupported operand"):
        left + 1  # type: ignore[operator]
    with pytest.raises(TypeError, match="unsupported operand"):
        left - [left]  # type: ignore[operator]
