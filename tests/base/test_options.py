"""Values as type hints describe them."""

from collections.abc import Mapping, Sequence
from datetime import date, datetime
from typing import Annotated, Any, Literal, Optional

import numpy as np
import pytest

from dsal.base.options import fit, plain
from dsal.errors import InputError

NAN = float("nan")


@pytest.mark.parametrize(
    ("hint", "value", "expected"),
    [
        (float, 3, 3.0),
        (float, np.float32(0.5), 0.5),
        (int, np.int64(3), 3),
        (int | float, 3, 3),
        (float | int, 2.5, 2.5),
        (Optional[int], "none", None),  # noqa: UP045
        (str | None, "none", None),
        (str | None, "some", "some"),
        (Literal["none", "all"] | None, "none", "none"),  # a choice of that name is meant
        (Literal["a", None], "none", None),
        (Literal[1, "1"], "1", "1"),
        (float | Literal["auto"], 1, 1.0),
        (float | Literal["auto"], "auto", "auto"),
        (tuple[int, ...], [1, 2], (1, 2)),
        (tuple[int, str], [1, "a"], (1, "a")),
        (tuple, [1, "a"], (1, "a")),
        (tuple[float, ...] | None, [1], (1.0,)),
        (list[float], (1, 2), [1.0, 2.0]),
        (list, [1, "a"], [1, "a"]),
        (Sequence[int], [1], [1]),
        (dict[str, tuple[int, ...]], {"a": [1]}, {"a": (1,)}),
        (Mapping[str, float], {"a": 1}, {"a": 1.0}),
        (Annotated[float, "positive"], 1, 1.0),
        (date, "2024-02-29", date(2024, 2, 29)),
        (datetime, datetime(2024, 2, 29, 1), datetime(2024, 2, 29, 1)),
        (Any, [1], [1]),
    ],
)
def test_what_fits(hint: Any, value: object, expected: object) -> None:
    fitted = fit("size", value, hint)
    assert (fitted, type(fitted)) == (expected, type(expected))
    assert fit("size", plain("size", fitted), hint) == fitted  # and back from a file


@pytest.mark.parametrize(
    ("hint", "value", "wanted"),
    [
        (int, 2.0, "int"),
        (int, True, "int"),
        (float, False, "float"),
        (float, "1", "float"),
        (bool, 1, "bool"),
        (int, "none", "int"),
        (str, None, "str"),
        (int | None, "nothing", "int or 'none'"),
        (Literal["a", "b"], "c", "'a' or 'b'"),
        (Literal[1], True, "1"),
        (tuple[int, str], [1], r"tuple\[int, str\]"),
        (tuple[int, ...], [1, "a"], r"tuple\[int, \.\.\.\]"),
        (tuple[int, ...], "12", r"tuple\[int, \.\.\.\]"),
        (list[int], {"a": 1}, r"list\[int\]"),
        (dict[str, int], {"a": "b"}, r"dict\[str, int\]"),
        (dict[str, int], [1], r"dict\[str, int\]"),
        (date, "soon", "date"),
    ],
)
def test_what_does_not_fit_is_answered_with_what_would(hint: Any, value: object, wanted: str) -> None:
    with pytest.raises(InputError, match=f"option my-size must be {wanted}, got"):
        fit("my_size", value, hint)


@pytest.mark.parametrize("value", [NAN, float("inf"), {1: 2}, {"a": {1, 2}}, [len], np.zeros(2)])
def test_what_no_file_can_hold_is_named(value: object) -> None:
    with pytest.raises(InputError, match=r"option my-size is .* cannot hold"):
        plain("my_size", value)
