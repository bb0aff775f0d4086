"""That the mutants are what they should be, and that the list of equivalent ones is up to date."""

import pytest

from .operators import mutants
from .run import ROOT, TARGETS, equivalents


@pytest.mark.parametrize(
    ("source", "changes"),
    [
        ("x = a + b * c", ["a + b * c -> a - b * c", "b * c -> b / c"]),
        ("x = 3", ["3 -> 0", "3 -> 4"]),
        ("X = 2.0", ["2.0 -> 0.0", "2.0 -> 4.0"]),
        ("x = 0", ["0 -> 1"]),
        ("x = a < b <= c", ["a < b <= c -> a <= b <= c", "a < b <= c -> a < b < c"]),
        ("x = not a or -b", ["not a or -b -> not a and -b", "not a -> a", "-b -> b"]),
        ("x = f(1) + f(1)", ["f(1) + f(1) -> f(1) - f(1)", "1 -> 0", "1 -> 2", "1 -> 0 (2)", "1 -> 2 (2)"]),
        ("x += y", ["x += y -> x -= y", "x += y -> nothing"]),
        ("x = f(strict=True)", []),
        ("f(x, flag=y)", ["f(x, flag=y) -> nothing", "f(x, flag=y) -> f(x)"]),
        (
            "x = y.max() if z else w.T",
            ["y.max() if z else w.T -> y.max() if not z else w.T", "y.max -> y.min", "w.T -> w"],
        ),
        ('def f(x: A[1]) -> B[2]:\n    """1 + 1"""\n    raise E(f"{1 + 1}")', []),
        ("from a import b", []),
    ],
)
def test_what_is_changed(source: str, changes: list[str]) -> None:
    found = list(mutants(source))
    assert [mutant.change for mutant in found] == changes
    for mutant in found:
        compile(mutant.source, "mutant", "exec")
        assert mutant.source != source


def test_a_place_is_known_by_its_names() -> None:
    source = "class A:\n    def f(self):\n        return 1 - 1\n"
    moved = "import os\n\n" + source
    assert [mutant.key for mutant in mutants(source)] == [mutant.key for mutant in mutants(moved)]
    assert next(mutants(source)).key == "A.f | return 1 - 1 | 1 - 1 -> 1 + 1"


@pytest.mark.parametrize("target", TARGETS)
def test_what_is_named_as_equivalent_is_a_mutant(target: str) -> None:
    source = (ROOT / "src" / "dsal" / f"{target}.py").read_text(encoding="utf-8")
    named = equivalents().get(target, {})
    assert named.keys() <= {mutant.key for mutant in mutants(source)}
    assert all(named.values())  # each with a reason
    assert all((ROOT / argument).is_file() for argument in TARGETS[target] if argument.startswith("tests/"))
