"""A mistake has a name, and leaves the model as it was, byte by byte."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from tests.oracle import Array, Rows

from dsal import DSALClassifier
from dsal.analytic.rows import RowKeys, RowSample
from dsal.classifier.inputs import Survey, read_rows
from dsal.data.images.decode import checked_source
from dsal.errors import InputError, UnknownNameError

RANDOM = np.random.default_rng(0)
X, Y = RANDOM.standard_normal((12, 4)), np.arange(12) % 3


def contents(model: DSALClassifier, folder: Path) -> bytes | dict[str, Any]:
    """Everything a model consists of: the bytes of its file, or of its attributes if it has learned nothing."""
    if not hasattr(model, "classes_"):
        return dict(vars(model))
    model.save(folder / "model.safetensors")
    return (folder / "model.safetensors").read_bytes() + repr(sorted(vars(model))).encode()


def with_value(value: float) -> Array:
    x = X.copy()
    x[7, 2] = value
    return x


def numbered_generator() -> Iterator[tuple[Array, NDArray[np.int64]]]:
    yield X, Y


BAD_PHASES: dict[str, tuple[tuple[Any, ...], str]] = {
    "NaN": ((with_value(np.nan), Y), "NaN"),
    "infinity": ((with_value(-np.inf), Y), "infinity"),
    "NaN in a tensor": ((torch.tensor(with_value(np.nan)), Y), "NaN"),
    "NaN in a batch": (([(X, Y), (with_value(np.nan), Y)],), "NaN or infinity"),
    "one dimension": ((X[:, 0], Y), "2D array"),
    "three dimensions": ((X[None], Y), "dim 3"),
    "words": ((np.full((12, 4), "word"), Y), "could not convert|Unable to convert"),
    "words in a batch": (([(np.full((12, 4), "word"), Y)],), "numeric matrix"),
    "no rows": ((X[:0], Y[:0]), "0 sample"),
    "no batches": (([],), "empty"),
    "empty batches": (([(X[:0], Y[:0])],), "empty"),
    "no weight": ((X, Y, None, np.zeros(12)), "empty"),
    "fewer labels": ((X, Y[:5]), "inconsistent numbers of samples"),
    "fewer labels in a batch": (([(X, Y[:5])],), "inconsistent numbers of samples"),
    "fewer weights": ((X, Y, None, np.ones(5)), "sample_weight must have shape"),
    "negative weights": ((X, Y, None, -np.ones(12)), "not negative"),
    "weights of NaN": ((X, Y, None, np.full(12, np.nan)), "finite"),
    "weights of words": ((X, Y, None, ["heavy"] * 12), "sample_weight"),
    "weights beside batches": (([(X, Y)], None, None, np.ones(12)), "third part of each batch"),
    "an iterator": ((numbered_generator(),), "read only once"),
    "an iterator with labels": ((iter(X), Y), "read only once"),
    "a batch without labels": (([X],), r"must be \(x, y\)"),
    "a batch of four": (([(X, Y, np.ones(12), 0)],), r"must be \(x, y\)"),
    "no labels": ((X,), "requires y"),
    "labels of two types": ((X, ["one", 2] * 6), r"labels mix types \(int, str\)"),
    "labels of two types in an array": ((X, np.array(["one", 2] * 6, dtype=object)), "labels mix types"),
    "labels of two types in two batches": (([(X, Y), (X, Y.astype(str))],), "labels mix types"),
    "labels missing": ((X, [None, 1] * 6), "labels mix types"),
    "labels of NaN": ((X, np.full(12, np.nan)), "NaN"),
    "labels that are no classes": ((X, np.linspace(0, 1, 12)), "Unknown label type"),
    "labels of complex numbers": ((X, Y + 1j), "Complex data"),
    "one-hot labels": ((X, np.eye(3)[Y]), "1d array"),
    "classes that do not cover y": ((X, Y, [0, 1]), r"not among `classes`: \[2\]"),
    "classes of another type": ((X, Y, ["0", "1", "2"]), "labels mix types"),
    "masked cells": ((np.ma.masked_greater(X, 1.0), Y), "X is a masked array"),
    "masked cells in a batch": (([(np.ma.masked_greater(X, 1.0), Y)],), "X is a masked array"),
    "masked labels": ((X, np.ma.masked_equal(Y, 1)), "y is a masked array"),
    "masked weights": ((X, Y, None, np.ma.masked_equal(Y + 1, 1)), "^sample_weight is a masked array"),
    "a tensor without numbers": ((torch.empty(12, 4, device="meta"), Y), "X is a tensor on the meta device"),
    "labels without numbers": ((X, torch.empty(12, device="meta")), "y is a tensor on the meta device"),
    "a sparse tensor": ((torch.tensor(X).to_sparse(), Y), "X is a tensor of torch.sparse_coo"),
    "huge whole numbers": (([[10**400] * 4] * 12, Y), "X: int too large"),
    "huge whole numbers as labels": ((X, [10**30, 1] * 6), "integer labels must lie between"),
    "unsigned labels that would wrap": (
        (X, Y.astype(np.uint64) + np.uint64(2**64 - 5)),
        "integer labels must lie between",
    ),
    "huge whole numbers as weights": ((X, Y, None, [10**400] * 12), "sample_weight: int too large"),
    "huge features": ((np.full((12, 4), 1e308), Y), "not finite|too large"),
}


def learn_in_vain(learn: Callable[..., Any], arguments: tuple[Any, ...], message: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # scikit-learn warns before it refuses
        with pytest.raises(ValueError, match=message) as raised:
            learn(*arguments)
    assert isinstance(raised.value, InputError)


@pytest.mark.parametrize("name", BAD_PHASES)
def test_a_bad_phase_is_refused_and_changes_nothing(name: str, tmp_path: Path) -> None:
    arguments, message = BAD_PHASES[name]
    fitted = DSALClassifier(expansion_size=8).fit(X, Y + 3)
    for model in (DSALClassifier(expansion_size=8), fitted):
        before = contents(model, tmp_path)
        learn_in_vain(model.partial_fit, arguments, message)
        assert contents(model, tmp_path) == before
    if len(arguments) != 3:  # fit knows no `classes`
        learn_in_vain(fitted.fit, (*arguments[:2], *arguments[3:]), message)
        assert contents(fitted, tmp_path) == before


def test_labels_of_another_type_than_before(tmp_path: Path) -> None:
    model = DSALClassifier(expansion_size=8).fit(X, Y)
    before = contents(model, tmp_path)
    for labels in (Y.astype(str), Y.astype(float), Y == 1, [b"a", b"b", b"c"] * 4):
        learn_in_vain(model.partial_fit, (X, labels), "labels mix types")
        learn_in_vain(model.forget, (X, labels), "labels mix types")
    assert contents(model, tmp_path) == before


@pytest.mark.parametrize("wrong", [X[:, :3], torch.tensor(X[:, :3]), np.hstack([X, X])])
def test_another_width_than_before(wrong: Any, tmp_path: Path) -> None:
    model = DSALClassifier(expansion_size=8).fit(X, Y)
    before = contents(model, tmp_path)
    for attempt in (
        lambda: model.partial_fit(wrong, Y),
        lambda: model.partial_fit([(X, Y), (wrong, Y)]),
        lambda: model.predict(wrong),
        lambda: model.forget(wrong, Y),
        lambda: model.loo_logits(wrong, Y),
    ):
        with pytest.raises(InputError, match="is expecting 4 features"):
            attempt()
    assert contents(model, tmp_path) == before
    with pytest.raises(InputError, match="is expecting 4 features"):
        DSALClassifier(expansion_size=8).fit([(X, Y), (wrong, Y)])


@pytest.mark.parametrize(
    ("parameter", "value", "message"),
    [
        ("gamma", 0, "gamma must be a positive number"),
        ("gamma", -0.1, "gamma must be a positive number"),
        ("gamma", "much", "gamma must be a positive number"),
        ("gamma", np.nan, "gamma must be a positive number"),
        ("gamma_comp", 0.0, "gamma_comp must be a positive number"),
        ("compensation", -1, "compensation must be"),
        ("compensation", np.inf, "compensation must be"),
        ("expansion_size", 0, "expansion_size must be"),
        ("expansion_size", 8.5, "expansion_size must be"),
        ("expansion_size", True, "expansion_size must be"),
        ("activation", "tanhh", "unknown activation 'tanhh'; did you mean 'tanh'"),
        ("main_activation", None, "unknown activation None"),
        ("expansion", "fourier", "unknown expansion 'fourier'. Valid names: gaussian, random"),
        ("random_state", -1, "random_state"),
        ("random_state", "seed", "random_state"),
        ("device", "abacus", "'abacus' cannot be used"),
    ],
)
def test_a_bad_parameter_is_named(parameter: str, value: Any, message: str) -> None:
    model = DSALClassifier(expansion_size=8).set_params(**{parameter: value})
    with pytest.raises(InputError, match=message) as raised:
        model.fit(X, Y)
    assert isinstance(raised.value, UnknownNameError) == ("unknown" in message)
    assert not hasattr(model, "n_features_in_")


class Unreliable:
    """Batches that go wrong in one of the passes over them, after a good one."""

    def __init__(self, fault: Callable[[], Any], in_pass: int) -> None:
        self.fault, self.in_pass, self.passes = fault, in_pass, 0

    def __iter__(self) -> Iterator[Any]:
        self.passes += 1
        yield X[:6], Y[:6]
        yield self.fault() if self.passes == self.in_pass else (X[6:], Y[6:])


def interrupted() -> Any:
    raise KeyboardInterrupt


def broken() -> Any:
    raise OSError("the network is down")


FAULTS: dict[str, tuple[Callable[[], Any], type[BaseException]]] = {
    "raises": (broken, OSError),
    "interrupted": (interrupted, KeyboardInterrupt),
    "NaN": (lambda: (with_value(np.nan)[6:], Y[6:]), InputError),
    "other numbers": (lambda: (X[6:] + 1e-9, Y[6:]), InputError),
    "other labels": (lambda: (X[6:], Y[6:][::-1]), InputError),
    "new labels": (lambda: (X[6:], Y[6:] + 50), InputError),
    "other width": (lambda: (X[6:, :2], Y[6:]), InputError),
    "fewer rows": (lambda: (X[6:9], Y[6:9]), InputError),
    "more rows": (lambda: (X, Y), InputError),
    "other weights": (lambda: (X[6:], Y[6:], np.full(6, 2.0)), InputError),
}


@pytest.mark.parametrize("name", FAULTS)
@pytest.mark.parametrize("in_pass", [1, 2, 3])
@pytest.mark.parametrize("fitted", [False, True])
def test_batches_that_go_wrong_midway_change_nothing(name: str, in_pass: int, fitted: bool, tmp_path: Path) -> None:
    fault, error = FAULTS[name]
    model = DSALClassifier(expansion_size=8)
    if fitted:
        model.fit(X, Y)
    before = contents(model, tmp_path)
    with pytest.raises((error, InputError)):
        model.partial_fit(Unreliable(fault, in_pass))
    assert contents(model, tmp_path) == before
    model.partial_fit(Unreliable(fault, in_pass=4))  # and can still learn


@pytest.mark.parametrize(
    ("x", "y", "message"),
    [
        (X, Y + 2, r"these classes were never learned: \[3, 4\]"),
        (np.tile(X, (2, 1)), np.tile(Y, 2), "more rows to forget than were learned"),
        (X, Y, "remove every row that was learned"),
        (X[:6] * 50, Y[:6], "never learned"),
    ],
)
def test_what_cannot_be_forgotten_changes_nothing(x: Array, y: Any, message: str, tmp_path: Path) -> None:
    model = DSALClassifier(expansion_size=8).fit(X, Y)
    before = contents(model, tmp_path)
    with pytest.raises(InputError, match=message):
        model.forget(x, y)
    assert contents(model, tmp_path) == before
    assert model.compensation == 0.6


def test_blocks_are_the_same_whatever_the_batches(rows: Rows) -> None:
    x, y = rows.x[:500].astype(np.float32), rows.y[:500]
    weight = RANDOM.random(500)
    classes = np.unique(y)

    def blocks(batches: Any) -> list[Any]:
        survey = Survey.of(
            read_rows(DSALClassifier(), batches, None, None, reset=True),
            features=None,
            kind=None,
            sample_size=9,
            seed=1,
        )
        assert (survey.rows, survey.features) == (500, 64)
        np.testing.assert_allclose(survey.weights, np.bincount(y, weight))
        return list(survey.phase(classes, torch.device("cpu")).read(64))

    expected = blocks([(x, y, weight)])
    assert [len(block.features) for block in expected] == [64] * 7 + [52]
    assert np.array_equal(np.concatenate([block.features for block in expected]), x)
    assert np.array_equal(np.concatenate([block.columns for block in expected]), y)
    assert np.array_equal(np.concatenate([block.weight for block in expected]), weight)
    for size in (1, 63, 64, 65, 200):
        batches = [(x[i : i + size], y[i : i + size], weight[i : i + size]) for i in range(0, 500, size)]
        for got, wanted in zip(blocks(batches), expected, strict=True):
            assert all(torch.equal(a, b) for a, b in zip(got, wanted, strict=True))


def test_samples_depend_on_the_rows_alone(rows: Rows) -> None:
    keys = RowKeys(64, seed=3)

    def sample(order: NDArray[np.int64], size: int) -> RowSample:
        result = RowSample(40, 64, seed=3)
        for i in range(0, len(order), size):
            part = order[i : i + size]
            result.add(rows.x[part], rows.y[part], np.ones(len(part)))
        return result

    one = sample(np.arange(2600), 2600)
    twice = sample(RANDOM.permutation(np.tile(np.arange(2600), 2)), 7)
    assert np.array_equal(one.x, twice.x)
    assert np.array_equal(one.y, twice.y)
    assert np.array_equal(2 * one.weight, twice.weight)
    assert len(np.unique(one.y.astype(int))) > 20  # spread over the classes
    other = RowKeys(64, seed=4)(rows.x, rows.y).argsort()[:40]
    assert len(set(map(bytes, rows.x[other])) & set(map(bytes, one.x))) < 10
    negative_zero = np.where(rows.x == 0, -0.0, rows.x)
    assert np.array_equal(keys(negative_zero, rows.y), keys(rows.x, rows.y))


def test_one_cell_out_of_all_proportion_is_named_and_gamma_is_not_blamed(tmp_path: Path) -> None:
    x, y = np.random.default_rng(0).standard_normal((200, 4)), np.arange(200) % 3
    model = DSALClassifier(expansion_size=64).fit(x, y)
    before = contents(model, tmp_path)
    x[7, 2] = 1e8
    with pytest.raises(InputError, match=r"one in row 7, counted from 0, is 1e\+08, while .* typical row") as raised:
        model.partial_fit(x, y)
    assert "gamma" not in str(raised.value)
    assert contents(model, tmp_path) == before


def test_features_that_are_large_throughout_are_too_large_for_gamma() -> None:
    with pytest.raises(InputError, match=r"gamma is too small for features of this size \(up to .*e\+12\)"):
        DSALClassifier(expansion_size=64).fit(1e12 * X, Y)


def test_a_masked_array_that_masks_nothing_is_an_array(rows: Rows) -> None:
    model = DSALClassifier(expansion_size=16).fit(rows.x, rows.y)
    same = DSALClassifier(expansion_size=16).fit(np.ma.masked_array(rows.x), rows.y)
    assert np.array_equal(model.logits(rows.x), same.logits(rows.x))
    with pytest.raises(InputError, match="masked"):
        model.predict(np.ma.masked_greater(rows.x, 1.0))


def test_masked_pixels_are_refused() -> None:
    pixels = np.ma.masked_array(np.zeros((4, 4, 3), np.uint8), mask=np.ones((4, 4, 3), bool))
    with pytest.raises(InputError, match="an image is a masked array"):
        checked_source(pixels)
