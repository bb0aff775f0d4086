"""Options: defaults of the learner, and checks of values from files and command lines against type hints.

The defaults are shared by the Python API, the command line and the reproduction.

TOML has no None: the text ``"none"`` replaces it where a hint allows None.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import fields, is_dataclass
from datetime import date, datetime, time
from inspect import signature
from numbers import Integral, Real
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from dsal.errors import InputError

EXPANSION_SIZE = 4096
"""d_B. The paper uses 8192 for CIFAR-100: more accurate, at four times the memory and time."""
GAMMA = 0.1
"""Ridge penalty of both streams, as in the paper."""
COMPENSATION = 0.6
"""C, as in the paper for CIFAR-100."""

NONE = "none"


def user_folder(variable: str) -> Path:
    """Return the folder that an environment variable names; by default ``~/.cache/dsal``."""
    return Path(os.environ.get(variable) or Path.home() / ".cache" / "dsal").expanduser()


def keyword_hints(cls: type) -> dict[str, Any]:
    """Return the type hints of a class's constructor arguments by name; ``Any`` for those without a hint."""
    names = list(signature(cls).parameters)
    # Class hints are resolved in the module of the base that declares them, constructor hints in the class's own.
    of_fields = is_dataclass(cls) and set(names) <= {field.name for field in fields(cls)}
    hints = get_type_hints(cls if of_fields else cls.__init__, include_extras=True)  # type: ignore[misc]
    return {name: hints.get(name, Any) for name in names}


def fit(name: str, value: Any, hint: Any) -> Any:
    """Return ``value`` as an instance of ``hint``.

    An integer becomes a float, a list a tuple, and ``"none"`` becomes None, where the hint asks for it.

    >>> fit("size", 3, float), fit("widths", [8, 4], tuple[int, ...]), fit("limit", "none", int | None)
    (3.0, (8, 4), None)
    >>> fit("mode", "fats", Literal["fast", "exact"])
    Traceback (most recent call last):
        ...
    dsal.errors.InputError: option mode must be 'fast' or 'exact', got 'fats'

    Raises:
        InputError: the value is of another type, or not one of the choices.
    """
    try:
        return _fit(value, hint)
    except (TypeError, ValueError) as error:
        raise InputError(f"option {name.replace('_', '-')} must be {_described(hint)}, got {value!r}") from error


def plain(name: str, value: Any) -> Any:
    """Return ``value`` in a form that both TOML and JSON can hold; :func:`fit` converts it back.

    >>> plain("pair", (None, 2.5))
    ['none', 2.5]
    """
    if value is None:
        return NONE
    if isinstance(value, str | bool | int) or (isinstance(value, float) and math.isfinite(value)):
        return value
    if isinstance(value, date | time):
        return value.isoformat()
    if isinstance(value, Mapping) and all(isinstance(key, str) for key in value):
        return {key: plain(name, item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(name, item) for item in value]
    raise InputError(
        f"option {name.replace('_', '-')} is {value!r}, which a configuration file cannot hold: "
        "use finite numbers, text, booleans, dates, and lists or tables of them"
    )


def _fit(value: Any, hint: Any) -> Any:
    origin, arguments = get_origin(hint) or hint, get_args(hint)
    if origin is Annotated:
        return _fit(value, arguments[0])
    if origin in (Any, object):
        return value
    if origin in (Union, UnionType):
        for arm in sorted(arguments, key=_precedence):
            with suppress(TypeError, ValueError):
                return _fit(value, arm)
    elif origin is Literal:
        for choice in arguments:
            if choice == value and type(choice) is type(value):
                return choice
        if None in arguments:
            return _fit(value, NoneType)
    elif origin is NoneType or origin is None:
        if value is None or value == NONE:
            return None
    elif origin is tuple:
        return tuple(_fit_items(value, arguments))
    elif origin in (list, Sequence, Iterable):
        return _fit_items(value, (*arguments, ...) if arguments else ())
    elif origin in (dict, Mapping):
        key, item = arguments or (str, Any)
        if isinstance(value, Mapping):
            return {_fit(name, key): _fit(content, item) for name, content in value.items()}
    elif origin in (date, datetime, time) and isinstance(value, str):
        return origin.fromisoformat(value)
    elif origin in (float, int):
        if isinstance(value, Real if origin is float else Integral) and not isinstance(value, bool):
            return origin(value)
    elif isinstance(value, origin):
        return value
    raise TypeError


def _fit_items(value: Any, hints: tuple[Any, ...]) -> list[Any]:
    """Fit the items of a list, each to its own hint, or all to the hint before an ellipsis."""
    if not isinstance(value, list | tuple):
        raise TypeError
    if not hints:
        return list(value)
    if hints[-1] is ...:
        hints = hints[:1] * len(value)
    return [_fit(item, hint) for item, hint in zip(value, hints, strict=True)]


def _precedence(hint: Any) -> int:
    """Rank the members of a union: exact choices first, then None, then types; float last, as it accepts integers."""
    if get_origin(hint) is Literal:
        return 0
    return 1 if hint is NoneType else 3 if hint is float else 2


def _described(hint: Any) -> str:
    if get_origin(hint) is Annotated:
        return _described(get_args(hint)[0])
    if get_origin(hint) is Literal:
        return " or ".join(repr(NONE if choice is None else choice) for choice in get_args(hint))
    if get_origin(hint) in (Union, UnionType):
        return " or ".join(_described(arm) for arm in get_args(hint))
    if hint is NoneType:
        return repr(NONE)
    return hint.__name__ if isinstance(hint, type) and not get_args(hint) else str(hint).replace("typing.", "")
