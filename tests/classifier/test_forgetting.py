"""After ``forget`` nothing depends on the rows: neither the saved file, whole, nor what is in memory."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone
from tests.oracle import Array, Rows

from dsal import DSALClassifier
from dsal.classifier.calibration import Calibration
from dsal.errors import InputError
from dsal.files.tensors import load_tensors

MODEL = DSALClassifier(expansion_size=96)


def whole_file(model: DSALClassifier, folder: Path) -> tuple[dict[str, Array], dict[str, Any]]:
    model.save(folder / "model.dsal")
    return load_tensors(folder / "model.dsal", kind="classifier")


def assert_equal_files(one: DSALClassifier, other: DSALClassifier, folder: Path, but: set[str] | None = None) -> None:
    (arrays, facts), (expected, expected_facts) = whole_file(one, folder), whole_file(other, folder)
    assert facts == expected_facts
    assert arrays.keys() == expected.keys()
    for name in arrays.keys() - (but or set()):
        scale = np.abs(expected[name]).max()
        np.testing.assert_allclose(arrays[name], expected[name], rtol=0, atol=1e-9 * scale, err_msg=name)


def two_phases(model: DSALClassifier, rows: Rows, more: tuple[Array, Array]) -> DSALClassifier:
    """Learn classes 0 to 19 with some more rows, and then classes 20 to 29."""
    x, y = rows.phase(0, 20)
    model.partial_fit(np.vstack([x, more[0]]), np.append(y, more[1])).partial_fit(*rows.phase(20, 30))
    return model


@pytest.mark.parametrize("parameters", [{}, {"compensation": "auto"}, {"gamma_comp": 3.0}, {"compensation": None}])
def test_the_whole_file_is_the_same_whatever_was_forgotten(
    rows: Rows, tmp_path: Path, parameters: dict[str, Any]
) -> None:
    """Two models that forgot different rows, one of which had a class of its own; and one that never saw either."""
    random = np.random.default_rng(0)
    some = 1.5 * random.standard_normal((40, 64)), random.integers(0, 20, 40)
    others = 0.7 * random.standard_normal((25, 64)), random.choice([3, 4, 99], 25)
    models = []
    for more in (some, others):
        model = two_phases(clone(MODEL).set_params(**parameters), rows, more)
        assert model.forget(*more) is model
        assert model.compensation_ == 0.0
        models.append(model)
    assert_equal_files(*models, folder=tmp_path)
    never = clone(MODEL).set_params(**parameters)
    never.partial_fit(*rows.phase(0, 20)).partial_fit(*rows.phase(20, 30))
    never.drop_compensation()
    assert_equal_files(models[0], never, tmp_path, but={"calibration"})  # that one is measured, ours is estimated
    known = rows.new_y < 30
    fitted = Calibration().plus(never.logits(rows.new[known]), rows.new_y[known], np.ones(known.sum()), total=1.0)
    assert 0.5 < models[0]._calibration.temperature / fitted.temperature < 2.0
    for model in models:
        model.partial_fit(*rows.phase(30, 33))
    assert_equal_files(*models, folder=tmp_path)


def test_nothing_of_the_rows_is_left_in_memory(rows: Rows) -> None:
    """Neither a stream nor the copy of the factor for a rollback, which would be pickled along."""
    model = two_phases(clone(MODEL), rows, rows.phase(30, 40))
    before = model._learner.ridges[0].square.clone()
    model.forget(*rows.phase(30, 40))
    assert model.coef_comp_ is None
    assert len(model._learner.ridges) == len(model._learner.gammas) == 1
    (ridge,) = model._learner.ridges
    assert not ridge.square.tril(-1).any()
    numbers = set(before.triu(1).flatten().tolist()) - {0.0}
    assert not numbers & set(ridge.square.flatten().tolist())
    assert len(pickle.dumps(model)) < 0.7 * len(pickle.dumps(two_phases(clone(MODEL), rows, rows.phase(30, 40))))


def test_a_model_that_could_not_forget_is_unchanged(rows: Rows) -> None:
    model = two_phases(clone(MODEL), rows, rows.phase(30, 40))
    before = pickle.dumps(model)
    x, y = rows.phase(30, 40)
    with pytest.raises(InputError, match="never learned"):
        model.forget(3 * x, y)
    assert model.coef_comp_ is not None
    assert pickle.dumps(model._calibration) == pickle.dumps(pickle.loads(before)._calibration)
    np.testing.assert_array_equal(model.logits(rows.new), pickle.loads(before).logits(rows.new))
    model.forget(x, y)


def test_without_its_compensation_stream_a_model_says_so(rows: Rows, tmp_path: Path) -> None:
    model = two_phases(clone(MODEL), rows, rows.phase(30, 40)).forget(*rows.phase(30, 40))
    model.save(tmp_path / "model.dsal")
    for each in (model, DSALClassifier.load(tmp_path / "model.dsal")):
        for value in (0.6, "auto"):
            each.compensation = value
            with pytest.raises(InputError, match=r"no compensation stream .* forget removed it"):
                each.partial_fit(*rows.phase(30, 33))
        each.compensation = 0.6
        with pytest.raises(InputError, match="no compensation stream"):
            each.predict(rows.new)
        each.compensation = 0
        assert each.predict(rows.new).shape == (len(rows.new),)


def test_what_forgot_merges_by_its_main_stream(rows: Rows) -> None:
    forgot = two_phases(clone(MODEL), rows, rows.phase(30, 40)).forget(*rows.phase(30, 40))
    other = clone(MODEL).fit(*rows.phase(40, 50))
    with pytest.raises(InputError, match="drop_compensation"):
        other.merge(forgot)
    x, y = (np.concatenate(parts) for parts in zip(rows.phase(0, 30), rows.phase(40, 50), strict=True))
    expected = clone(MODEL).set_params(compensation=None).fit(x, y).logits(rows.new)
    merged = (forgot + other).logits(rows.new)
    np.testing.assert_allclose(merged, expected, atol=1e-9)
    merged = (other.drop_compensation() + forgot).logits(rows.new)
    np.testing.assert_allclose(merged[:, [*range(10, 40), *range(10)]], expected, atol=1e-9)


def test_rows_that_the_expansion_holds_cannot_be_forgotten(rows: Rows) -> None:
    model = clone(MODEL).set_params(expansion="gaussian", compensation=None).fit(*rows.phase(0, 20))
    x, y = rows.phase(0, 20)
    centres = {centre.tobytes() for centre in model.projection_.T}
    held = np.array([row.tobytes() in centres for row in x])
    assert held.sum() == 96
    before = model.coef_main_.copy()
    with pytest.raises(InputError, match="part of the expansion"):
        model.forget(x[held][:1], y[held][:1])
    np.testing.assert_array_equal(model.coef_main_, before)
    model.forget(x[~held][:5], y[~held][:5])


def test_keeping_the_compensation_keeps_what_was_measured_with_it(rows: Rows) -> None:
    model = two_phases(clone(MODEL), rows, rows.phase(30, 40))
    losses, weights = model._calibration.losses, model.coef_comp_
    model.forget(*rows.phase(30, 40), keep_compensation=True)
    assert model.compensation == 0.6
    np.testing.assert_array_equal(model._calibration.losses, losses)
    assert model.coef_comp_ is not None
    assert weights is not None
    np.testing.assert_allclose(model.coef_comp_, weights[:, [*range(20), *range(30, 40)]], rtol=1e-12)
