"""Where an option's value comes from: command line, then file, then preset, then default."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from inspect import signature
from pathlib import Path
from types import NoneType
from typing import Any, get_args, get_type_hints

from dsal.errors import InputError, UnknownNameError
from dsal.evaluation.experiment import METHOD_OPTIONS, Experiment
from dsal.methods import METHODS

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

PAPER: Mapping[str, Any] = {
    "expansion": "random",
    "expansion_size": 8192,
    "gamma": 0.1,
    "compensation": 0.6,  # CIFAR-100's
    "activation": "tanh",
    "class_order": "natural",
}
QUICK: Mapping[str, Any] = {"expansion_size": 1024, "phases": 5}


@dataclass(frozen=True, kw_only=True)
class Handling:
    """How to run an experiment, none of which can change its results."""

    out: str | None = None
    resume: bool = False
    json: bool = False
    report: bool = True
    tensorboard: bool = False
    checkpoint_seconds: float = 30.0
    paper: bool = False
    quick: bool = False


def read_assignments(texts: Iterable[str]) -> dict[str, Any]:
    """Options of a method from texts like ``power=0.5``, by their Python names.

    Raises:
        InputError: a text is no assignment, or what it names is no option.
    """
    table = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals:
            raise InputError(f"expected NAME=VALUE, as in power=0.5; got {text!r}")
        try:
            table[_option(key.strip())] = tomllib.loads(f"value = {value}")["value"]
        except ValueError:
            table[_option(key.strip())] = value.strip()
    return table


def read_options(path: Path) -> dict[str, Any]:
    """The options of a TOML file, by their Python names.

    Raises:
        InputError: the file is not there or not TOML, or a key is no option: the nearest one is named.
    """
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(f"cannot read the configuration {path}: {error}") from error
    return {_option(key): value for key, value in table.items()}


def combine(given: Mapping[str, Any], filed: Mapping[str, Any]) -> tuple[Experiment, Handling]:
    """Options of the command line over those of a file, over a preset, over the defaults."""
    asked = {name: _checked(name, value) for name, value in {**filed, **given}.items()}
    handling = Handling(**{name: asked[name] for name in asked if name in _HANDLING})
    if handling.paper and handling.quick:
        raise InputError("--paper and --quick exclude each other")
    preset = PAPER if handling.paper else QUICK if handling.quick else {}
    takes = signature(METHODS.get(asked.get("method", Experiment.method))).parameters
    apt = {name: value for name, value in preset.items() if name not in METHOD_OPTIONS or name in takes}
    own = {name: asked[name] for name in asked if name not in _EXPERIMENT | _HANDLING}
    named = {name: asked[name] for name in asked if name in _EXPERIMENT}
    return Experiment(**{**apt, **named}, method_options=own), handling


_EXPERIMENT = {field.name for field in fields(Experiment)} - {"method_options"}
_HANDLING = {field.name for field in fields(Handling)}
_METHODS = {
    name: hint for method in METHODS.names() for name, hint in get_type_hints(METHODS.get(method).__init__).items()
}
_HINTS = {**_METHODS, **get_type_hints(Experiment), **get_type_hints(Handling)}
_NAMES = (_EXPERIMENT | _HANDLING | set(_METHODS)) - {"seed", "return"}


def _option(key: str) -> str:
    name = key.replace("-", "_")
    if name not in _NAMES:
        raise UnknownNameError("option", key, (option.replace("_", "-") for option in _NAMES))
    return name


def _checked(name: str, value: Any) -> Any:
    """The value as the option's type, where it can be meant."""
    if name == "seeds":
        return read_seeds(value)
    if name == "class_order" and type(value) is int:
        return str(value)
    kinds = set(get_args(_HINTS[name]) or (_HINTS[name],)) - {NoneType}
    if float in kinds and type(value) is int:
        return float(value)
    if type(value) not in kinds:
        wanted = " or ".join(sorted(kind.__name__ for kind in kinds))
        raise InputError(f"option {name.replace('_', '-')} must be of type {wanted}, got {value!r}")
    return value


def read_seeds(value: Any) -> tuple[int, ...]:
    """Seeds from a number, a list of numbers, or their text with commas.

    >>> read_seeds("0,1,2"), read_seeds([4, 5]), read_seeds(7)
    ((0, 1, 2), (4, 5), (7,))
    """
    given = value.split(",") if isinstance(value, str) else value if isinstance(value, list) else [value]
    try:
        seeds = tuple(int(seed) for seed in given if not isinstance(seed, bool | float))
    except (TypeError, ValueError):
        seeds = ()
    if len(seeds) != len(given) or min(seeds, default=0) < 0:
        raise InputError(f"seeds must be numbers from 0 up, as in 0,1,2; got {value!r}")
    return seeds
