"""Declared contents: each fact and each array on both sides of its border."""

from typing import Any

import numpy as np
import pytest

from dsal.files.schema import (
    Anything,
    Array,
    Choice,
    Each,
    Fact,
    Flag,
    Maybe,
    Mismatch,
    Number,
    Record,
    Ruled,
    Text,
    check_headers,
    parse_json,
)  # fmt: skip

RECORD = Record({"a": Number(0, 1)}, optional={"b": Flag()})
UNEVEN = Ruled(Each(Number()), lambda values: None if len(values) % 2 else "an even number of values")


@pytest.mark.parametrize(
    ("fact", "right", "wrong"),
    [
        (Text(3), ["", "abc", "äöü", "\U0001f600"], ["abcd", "\ud800", 1, None, ["a"]]),
        (Number(0, 100), [0, 100, 0.5], [-1e-9, 101, float("nan"), float("inf"), True, "1", None, 10**400]),
        (Number(whole=True), [-5, 10**30], [1.0, True, "1"]),
        (Flag(), [True, False], [0, 1, "true", None]),
        (Choice((1, "x")), [1, "x"], [True, 1.0, "y", None, []]),
        (Maybe(Flag()), [None, True], [0]),
        (Each(Flag(), 1, 2), [[True], [True, False]], [[], [True] * 3, [1], "ab", {"a": True}]),
        (RECORD, [{"a": 1}, {"a": 0, "b": True}], [{}, {"a": 2}, {"a": 1, "c": 0}, {"a": 1, "\ud800": 0}, [], None]),
        (Record({}, rest=Flag()), [{}, {"x": True}], [{"x": 1}, {"x" * 1001: True}]),
        (Anything(), [None, [{"a": [1.5, "x"]}], True], [float("nan"), ["\ud800"], {"a": float("inf")}, 10**400]),
        (Anything(2), [[], [[]]], [[[[]]]]),
        (UNEVEN, [[1]], [[1, 2], ["x"]]),
    ],
)
def test_facts(fact: Fact, right: list[Any], wrong: list[Any]) -> None:
    for value in right:
        fact.check(value, "it")
    for value in wrong:
        with pytest.raises(Mismatch, match=r"^[^\n]{1,200}$") as caught:
            fact.check(value, "it")
        str(caught.value).encode()  # can be printed


def test_a_mismatch_names_the_part() -> None:
    nested = Record({"list": Each(RECORD)})
    with pytest.raises(Mismatch, match=r"^results\.list\[1\]\.a must be a finite number from 0 to 1, not 7$"):
        nested.check({"list": [{"a": 0}, {"a": 7}]}, "results")


@pytest.mark.parametrize("text", ["", "{", "[" * 100_000, "[" + "1," * 600_000 + "1]"])
def test_what_is_no_json(text: str) -> None:
    with pytest.raises(Mismatch):
        parse_json(text)


ARRAYS = {
    "factor": Array("float64", (lambda sizes: sizes["d"] * (sizes["d"] + 1) // 2,)),
    "targets": Array("float64", ("classes", "d")),
    r"counts\d+": Array(("int32", "int64"), ("_n", "_n"), low=0, high=9, optional=True),
}
RIGHT = {"factor": ("float64", (6,)), "targets": ("float64", (2, 3)), "counts0": ("int32", (2, 2))}


def test_headers() -> None:
    check_headers(RIGHT, ARRAYS, {"classes": 2})
    check_headers({**RIGHT, "counts1": ("int64", (5, 5))}, ARRAYS, {})
    for name, header in (
        ("factor", ("float64", (5,))),
        ("factor", ("float32", (6,))),
        ("factor", ("float64", (6, 1))),
        ("targets", ("float64", (3, 3))),
        ("counts0", ("int32", (2, 3))),
        ("counts", ("int32", (2, 2))),
    ):
        with pytest.raises(Mismatch, match=name):
            check_headers({**RIGHT, name: header}, ARRAYS, {"classes": 2})
    with pytest.raises(Mismatch, match="lacks the array targets"):
        check_headers({"factor": RIGHT["factor"]}, ARRAYS, {"d": 3})


def test_values() -> None:
    counts = ARRAYS[r"counts\d+"]
    counts.check_values(np.array([0, 9]), "counts0")
    counts.check_values(np.zeros(0, dtype=int), "counts0")
    for wrong in (np.array([-1]), np.array([10])):
        with pytest.raises(Mismatch, match="counts0 must be from 0 to 9"):
            counts.check_values(wrong, "counts0")
    for value in (np.nan, np.inf):
        with pytest.raises(Mismatch, match="factor has values that are not finite"):
            ARRAYS["factor"].check_values(np.array([0, value]), "factor")
