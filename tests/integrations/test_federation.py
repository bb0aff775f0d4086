"""What clients send and a server adds up, without any framework: equal to learning in one place."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.datasets import load_digits

from dsal import DSALClassifier
from dsal.errors import FileFormatError, InputError
from dsal.integrations.federation import (
    ClientSums,
    agreed,
    facts_of,
    model_of,
    part_of,
    part_of_sums,
    request,
    residue_part,
    sums_of,
    with_residues,
)
from dsal.integrations.masking import masked, new_keys, unmasked

X, Y = load_digits(return_X_y=True)
X = X / 16


def clients(number: int) -> list[tuple[NDArray[Any], NDArray[Any]]]:
    """Unequal shares; the first clients lack classes."""
    keys = (np.random.default_rng(0).random(len(Y)) + 0.15 * Y).argsort()
    return [(X[rows], Y[rows]) for rows in np.array_split(keys, number)]


def sent(part: ClientSums) -> ClientSums:
    """What arrives of it."""
    return ClientSums(
        {name: np.array(array) for name, array in part.arrays.items()}, json.loads(json.dumps(part.facts))
    )


@pytest.mark.parametrize("number", [1, 3, 20])
def test_added_up_is_pooled(number: int) -> None:
    options = request(DSALClassifier(expansion_size=200, compensation=None))
    first, *rest = (model_of(sent(part_of(DSALClassifier(**options).fit(x, y))), options) for x, y in clients(number))
    for other in rest:
        first.merge(other)
    pooled = DSALClassifier(**options).fit(X, Y)
    order = np.argsort(first.classes_)
    np.testing.assert_allclose(first.coef_main_[:, order], pooled.coef_main_, atol=1e-8)


@pytest.mark.parametrize("cleanse", [True, False])
def test_clients_as_phases_are_one_process(cleanse: bool) -> None:
    options = request(DSALClassifier(expansion_size=150, gamma=0.3, gamma_comp=0.7, cleanse=cleanse))
    groups = [(X[(a <= Y) & (b > Y)], Y[(a <= Y) & (b > Y)]) for a, b in pairwise([0, 4, 7, 10])]
    groups.append((X[::3], Y[::3]))  # known classes return
    main = options | {"compensation": None}
    alone = DSALClassifier(**options)
    total, parts = None, []
    for x, y in groups:
        alone.partial_fit(x, y)
        one = model_of(sent(part_of(DSALClassifier(**main).fit(x, y))), main)
        total = one if total is None else total.merge(one)
        classes = total.classes_.tolist()
        parts.append(sent(residue_part(options, x, y, total.coef_main_, classes, first=not parts)))
    assert total is not None
    whole = with_residues(total, parts, options)
    assert whole.classes_.tolist() == alone.classes_.tolist()
    assert whole.coef_comp_ is not None
    assert alone.coef_comp_ is not None
    np.testing.assert_allclose(whole.coef_main_, alone.coef_main_, atol=1e-8)
    np.testing.assert_allclose(whole.coef_comp_, alone.coef_comp_, atol=1e-8)
    np.testing.assert_allclose(whole.logits(X), alone.logits(X), atol=1e-8)
    assert (whole.gamma_comp_, whole.compensation) == (0.7, 0.6)
    whole.partial_fit(X, Y)  # and goes on


def test_half_the_bytes_and_what_they_cost() -> None:
    options = request(DSALClassifier(expansion_size=512, compensation=None))
    fitted = [DSALClassifier(**options).fit(x, y) for x, y in clients(3)]
    full, half = ([part_of(model, dtype) for model in fitted] for dtype in ("float64", "float32"))
    assert half[0].bytes < 0.51 * full[0].bytes
    assert full[0].bytes == pytest.approx(8 * (512 * 513 / 2 + 512 * len(fitted[0].classes_)), rel=0.01)
    pooled = DSALClassifier(**options).fit(X, Y)
    first, *rest = (model_of(sent(part), options) for part in half)
    for other in rest:
        first.merge(other)
    order = np.argsort(first.classes_)
    difference = np.abs(first.logits(X)[:, order] - pooled.logits(X)).max()
    assert 1e-9 < difference < 2e-3  # the page states what was measured


def test_few_rows_need_few_numbers() -> None:
    """A truncated factor stays within the error that it states, and is smaller by far if a client has few rows."""
    options = request(DSALClassifier(expansion_size=400, gamma=1.0))
    fitted = [DSALClassifier(**options).fit(x, y) for x, y in clients(20)]
    full, short = [part_of(model) for model in fitted], [part_of(model, tolerance=1e-3) for model in fitted]
    assert sum(part.bytes for part in short) < 0.5 * sum(part.bytes for part in full)
    pooled, (first, *rest) = DSALClassifier(**options).fit(X, Y), [model_of(sent(part), options) for part in short]
    for other in rest:
        first.merge(other)
    stated = sum(part.facts["error"] for part in short)
    assert 0 < stated <= 20 * 1e-3
    difference = np.linalg.norm(first.coef_main_[:, np.argsort(first.classes_)] - pooled.coef_main_)
    assert difference <= stated * np.linalg.norm(pooled.coef_main_)
    coarse = part_of(fitted[0], tolerance=100.0)
    assert coarse.bytes < short[0].bytes
    assert 1.0 < coarse.facts["error"] <= 100.0
    for name, wrong in (("main.order", np.zeros(400)), ("main.rows", short[0].arrays["main.rows"][1:])):
        with pytest.raises(FileFormatError, match="not those of a factor"):
            model_of(ClientSums({**short[0].arrays, name: wrong}, short[0].facts), options)


@pytest.mark.parametrize("compensation", [None, 0.6])
def test_the_sum_under_masks_is_that_of_merged_clients(compensation: float | None) -> None:
    pytest.importorskip("cryptography")
    options = request(DSALClassifier(expansion_size=100, compensation=compensation))
    fitted = [DSALClassifier(**options).fit(x, y) for x, y in clients(3)]
    told = {str(i): json.loads(json.dumps(facts_of(options, x, y))) for i, (x, y) in enumerate(clients(3))}
    told["other"] = facts_of(options, X[:, 1:], Y)
    facts, others = agreed(told, options)
    assert others == {"other"}
    keys = [new_keys() for _ in fitted]
    parts = [
        masked(sums_of(model, facts["classes"]), private, [public for _, public in keys])
        for model, (private, _) in zip(fitted, keys, strict=True)
    ]
    hidden = model_of(part_of_sums(unmasked(parts), facts, options), options)
    total, *rest = fitted
    for other in rest:
        total.merge(other)
    assert hidden.classes_.tolist() == total.classes_.tolist()
    assert hidden.n_phases_ == total.n_phases_
    np.testing.assert_allclose(hidden.coef_main_, total.coef_main_, atol=1e-8)
    np.testing.assert_allclose(hidden.predict_proba(X), total.predict_proba(X), atol=1e-7)
    pooled = DSALClassifier(**options).fit(X, Y)
    np.testing.assert_allclose(hidden.coef_main_[:, np.argsort(hidden.classes_)], pooled.coef_main_, atol=1e-8)
    hidden.partial_fit(X, Y)  # and goes on


def test_one_client_or_one_too_few_shows_nothing() -> None:
    pytest.importorskip("cryptography")
    (one, public), (two, other) = new_keys(), new_keys()
    numbers = {"a": np.linspace(-1, 1, 1000)}
    first, second = masked(numbers, one, [public, other]), masked(numbers, two, [public, other])
    assert np.abs(unmasked([first])["a"]).max() > 1e7  # noise all over the range
    assert abs(np.corrcoef(unmasked([first])["a"], numbers["a"])[0, 1]) < 0.2
    np.testing.assert_allclose(unmasked([first, second])["a"], 2 * numbers["a"], atol=2.0**-35)
    for keys in ([public], [other, other]):
        with pytest.raises(InputError, match="nothing is sent"):
            masked(numbers, one, keys)
    for wrong in (np.nan, 2.0**25):
        with pytest.raises(InputError, match="may overflow"):
            masked({"a": np.array([wrong])}, one, [public, other])
    with pytest.raises(FileFormatError, match="a client sent a"):
        unmasked([first, {"a": second["a"][1:]}])


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("a short factor", lambda part: part.arrays.update({"main.factor": part.arrays["main.factor"][:-1]})),
        ("no targets", lambda part: part.arrays.pop("main.targets")),
        ("not finite", lambda part: part.arrays["main.targets"].fill(np.nan)),
        ("no classes", lambda part: part.facts.update(classes=[])),
        ("other features", lambda part: part.facts.update(features=63)),
        ("negative counts", lambda part: part.arrays["class_weight"].fill(-1)),
        ("no facts", lambda part: part.facts.clear()),
    ],
)
def test_a_wrong_answer_is_refused(name: str, change: Any) -> None:
    options = request(DSALClassifier(expansion_size=16, compensation=None))
    part = sent(part_of(DSALClassifier(**options).fit(X, Y)))
    change(part)
    with pytest.raises(FileFormatError, match="what the client sent"):
        model_of(part, options)


def test_wrong_residues_are_refused() -> None:
    options = request(DSALClassifier(expansion_size=16))
    model = DSALClassifier(**(options | {"compensation": None})).fit(X, Y)
    good = residue_part(options, X, Y, model.coef_main_, model.classes_.tolist(), first=True)
    for arrays in ({}, {**good.arrays, "comp.factor": good.arrays["comp.factor"][1:]}):
        with pytest.raises(FileFormatError, match="a client"):
            with_residues(model, [ClientSums(dict(arrays), good.facts)], options)
    with pytest.raises(InputError, match="no client"):
        with_residues(model, [], options)


def test_what_cannot_be_agreed_on_is_refused() -> None:
    with pytest.raises(InputError, match="without rows"):
        request(DSALClassifier(expansion="gaussian"))
    with pytest.raises(InputError, match="float16"):
        part_of(DSALClassifier(expansion_size=16).fit(X, Y), "float16")
    with pytest.raises(InputError, match="numbers for gamma"):
        residue_part(
            request(DSALClassifier(expansion_size=16, gamma_comp="auto")), X, Y, np.zeros((16, 10)), [*range(10)], True
        )
