"""A saved model goes on as if it had never stopped."""

from __future__ import annotations

from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.oracle import Rows

from dsal import DSALClassifier
from dsal.analytic.activations import activations
from dsal.errors import FileFormatError, InputError, UnknownNameError
from dsal.files.tensors import load_tensors, save_tensors


def saved_and_loaded(model: DSALClassifier, folder: Path, **options: Any) -> DSALClassifier:
    model.save(folder / "model.safetensors", **options)
    return DSALClassifier.load(folder / "model.safetensors")


def assert_equal_bits(one: DSALClassifier, other: DSALClassifier, x: Any) -> None:
    assert np.array_equal(one.classes_, other.classes_)
    assert one.classes_.dtype == other.classes_.dtype
    assert one.n_phases_ == other.n_phases_
    for method in ("logits", "predict", "predict_proba"):
        assert getattr(one, method)(x).tobytes() == getattr(other, method)(x).tobytes()
    assert one.coef_main_.tobytes() == other.coef_main_.tobytes()


@pytest.mark.parametrize(
    "parameters",
    [
        {},
        {"gamma": 0.3, "gamma_comp": 0.7, "compensation": 1.2, "cleanse": False, "random_state": 7},
        {"compensation": None},
        {"expansion": "gaussian", "activation": "mish", "main_activation": "identity"},
        {"random_state": np.random.RandomState(3), "gamma": np.float32(0.5), "expansion_size": np.int64(70)},
    ],
)
@pytest.mark.parametrize("labels", [int, str])
def test_saved_loaded_and_continued_is_never_having_stopped(
    rows: Rows, tmp_path: Path, parameters: dict[str, Any], labels: type
) -> None:
    model, never_stopped = (DSALClassifier(**{"expansion_size": 80, **deepcopy(parameters)}) for _ in range(2))
    for start, stop in [(40, 90), (90, 91), (0, 5), (80, 100)]:
        x, y = rows.phase(start, stop)
        model = saved_and_loaded(model.partial_fit(x, y.astype(labels)), tmp_path)
        never_stopped.partial_fit(x, y.astype(labels))
    assert_equal_bits(model, never_stopped, rows.new)
    x, y = rows.phase(80, 85)
    model.forget(x[:9], y[:9].astype(labels))
    never_stopped.forget(x[:9], y[:9].astype(labels))
    assert_equal_bits(model, never_stopped, rows.new)
    for name, value in never_stopped.get_params().items():
        if name not in ("device", "random_state"):
            assert getattr(model, name) == value


def test_a_model_without_its_learning_part_predicts_and_says_why_it_cannot_learn(rows: Rows, tmp_path: Path) -> None:
    model = DSALClassifier(expansion_size=400).fit(rows.x, rows.y)
    model.save(tmp_path / "whole")
    small = saved_and_loaded(model, tmp_path, learning=False)
    assert (tmp_path / "model.safetensors").stat().st_size < 0.5 * (tmp_path / "whole").stat().st_size
    assert (tmp_path / "whole").stat().st_size < 8 * (400 * 401 + 4 * 400 * 100 + 64 * 400) + 50_000  # triangles only
    assert_equal_bits(model, small, rows.new)
    small.compensation = 1.0
    model.compensation = 1.0
    assert_equal_bits(model, small, rows.new)
    head = small.to_torch(torch.float64)
    np.testing.assert_allclose(head(torch.tensor(rows.new)), model.logits(rows.new), atol=1e-12)
    for attempt in (
        lambda: small.partial_fit(rows.x, rows.y),
        lambda: small.forget(rows.x, rows.y),
        lambda: small.merge(model),
        lambda: model.merge(small),
        lambda: small.loo_logits(rows.x, rows.y),
        lambda: small.condition(),
        lambda: small.save(tmp_path / "again"),
    ):
        with pytest.raises(InputError, match="saved without its learning part"):
            attempt()
    assert_equal_bits(saved_and_loaded(small, tmp_path, learning=False), model, rows.new)
    assert small.fit(rows.x, rows.y).n_phases_ == 1  # from scratch it can


def test_feature_names_are_remembered(rows: Rows, tmp_path: Path) -> None:
    model = DSALClassifier(expansion_size=16).fit(rows.x, rows.y)
    assert not hasattr(saved_and_loaded(model, tmp_path), "feature_names_in_")
    model.feature_names_in_ = np.array([f"f{i}" for i in range(64)], dtype=object)
    assert saved_and_loaded(model, tmp_path).feature_names_in_.tolist() == model.feature_names_in_.tolist()


def test_what_cannot_be_saved_says_so_and_leaves_the_old_file(rows: Rows, tmp_path: Path) -> None:
    path = tmp_path / "model"
    x, y = rows.phase(0, 3)
    good = DSALClassifier(expansion_size=8).fit(x, y)
    good.save(path)
    before = path.read_bytes()
    own = DSALClassifier(expansion_size=8, activation=lambda z: z**3).fit(x, y)
    with pytest.raises(InputError, match="no name to save it by"):
        own.save(path)
    pairs = np.empty(len(y), dtype=object)
    pairs[:] = [(int(label), "x") for label in y]
    with pytest.raises(InputError, match="labels of type tuple cannot be saved"):
        DSALClassifier(expansion_size=8).fit(x, pairs).save(path)
    with pytest.raises(ValueError, match="not fitted"):
        DSALClassifier().save(path)
    assert path.read_bytes() == before
    function = DSALClassifier(expansion_size=8, activation=torch.tanh).fit(x, y)
    assert_equal_bits(saved_and_loaded(function, tmp_path), good, rows.new)  # torch.tanh has a name


def test_a_registered_activation_is_saved_by_its_name(rows: Rows, tmp_path: Path) -> None:
    activations.register("cube for a test")(lambda z: z**3)
    model = DSALClassifier(expansion_size=8, activation="cube for a test").fit(rows.x, rows.y)
    assert_equal_bits(saved_and_loaded(model, tmp_path), model, rows.new)
    arrays, meta = load_tensors(tmp_path / "model.safetensors")
    meta["params"]["activation"] = "not registered here"
    save_tensors(tmp_path / "elsewhere", arrays, meta)
    with pytest.raises(UnknownNameError, match="unknown activation 'not registered here'"):
        DSALClassifier.load(tmp_path / "elsewhere")


def test_files_that_are_no_classifier_are_refused(rows: Rows, tmp_path: Path) -> None:
    path = tmp_path / "model"
    DSALClassifier(expansion_size=8).fit(rows.x, rows.y).save(path)
    arrays, meta = load_tensors(path)
    broken: list[tuple[dict[str, Any], dict[str, Any]]] = [
        (arrays, {**meta, "kind": "backbone"}),
        (arrays, {**meta, "params": {"flavour": "sweet"}}),
        (arrays, {key: value for key, value in meta.items() if key != "classes"}),
        ({key: value for key, value in arrays.items() if key != "main.weights"}, meta),
        ({key: value for key, value in arrays.items() if key != "comp.factor"}, meta),
        ({**arrays, "main.factor": arrays["main.factor"][:-1]}, meta),
        ({**arrays, "main.weights": arrays["main.weights"][:-1]}, meta),
        ({**arrays, "comp.targets": arrays["comp.targets"][:-1]}, meta),
        ({**arrays, "expansion.projection": arrays["expansion.projection"][:, :-1]}, meta),
        (arrays, {**meta, "classes": meta["classes"][:-1]}),
    ]
    for some_arrays, some_meta in broken:
        save_tensors(path, some_arrays, some_meta)
        with pytest.raises(FileFormatError, match=str(path)):
            DSALClassifier.load(path)
