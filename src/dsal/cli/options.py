"""Where an option's value comes from: command line, then file, then preset, then default."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_type_hints

from dsal.errors import InputError, UnknownNameError
from dsal.evaluation.config import flat
from dsal.evaluation.experiment import Experiment, option_hints
from dsal.hints import fit

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
    """Options of a method from texts like ``power=0.5``, by their Python names; what is no TOML value is text.

    Raises:
        InputError: a text is no assignment, or what it names is no option of a method.
    """
    table = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals:
            raise InputError(f"expected NAME=VALUE, as in power=0.5; got {text!r}")
        table[key.strip()] = _value(value.strip())
    return _of_method(table)


def read_options(path: Path) -> dict[str, Any]:
    """The options of a TOML file, those of the method (table ``[method]``) among the others, by their Python names.

    Raises:
        InputError: the file is not there or not TOML, or the table holds what is no option of a method.
    """
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(f"cannot read the configuration {path}: {error}") from error
    if isinstance(table.get("method"), dict):
        table["method"] = _of_method(table["method"])
    return {_name(key): value for key, value in flat(table).items()}


def combine(given: Mapping[str, Any], filed: Mapping[str, Any]) -> tuple[Experiment, Handling]:
    """Options of the command line over those of a file, over a preset, over the defaults.

    Raises:
        InputError: an option is neither of the run nor of its method (the nearest is named), or of another type.
    """
    asked = {**filed, **given}
    run = {name: _checked(name, value) for name, value in asked.items() if name in _HINTS}
    handling = Handling(**{name: run.pop(name) for name in list(run) if name in _HANDLING})
    if handling.paper and handling.quick:
        raise InputError("--paper and --quick exclude each other")
    preset = PAPER if handling.paper else QUICK if handling.quick else {}
    taken = option_hints(run.get("method", Experiment.method))
    for name in asked:
        if name not in _HINTS and name not in taken:
            valid = (option.replace("_", "-") for option in (*_HINTS, *taken))
            raise UnknownNameError("option", name.replace("_", "-"), valid)
    values = {**preset, **asked, **run}
    options = {name: value for name, value in values.items() if name in taken}
    return Experiment(**{name: values[name] for name in values if name in _EXPERIMENT}, options=options), handling


_HANDLING = get_type_hints(Handling)
_EXPERIMENT = {name: hint for name, hint in get_type_hints(Experiment).items() if name != "options"}
_HINTS = {**_EXPERIMENT, **_HANDLING}


def _name(key: str) -> str:
    return key.replace("-", "_")


def _value(text: str) -> Any:
    """What a text means in TOML; a number that TOML writes otherwise, such as .5; or the text itself."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except ValueError:
        try:
            return float(text)
        except ValueError:
            return text


def _of_method(table: Mapping[str, Any]) -> dict[str, Any]:
    """Options of a method by their Python names; one that belongs to the run is refused."""
    named = {_name(key): value for key, value in table.items()}
    for name in named:
        if name in _HINTS:
            raise InputError(
                f"{name.replace('_', '-')} is an option of the run, not of its method: "
                "in a file it belongs above [method], on the command line it has a flag of its own"
            )
    return named


def _checked(name: str, value: Any) -> Any:
    """The value as the option's type, where it can be meant."""
    if name == "seeds":
        return read_seeds(value)
    if name == "class_order" and type(value) is int:
        return str(value)
    return fit(name, value, _HINTS[name])


def read_seeds(value: Any) -> tuple[int, ...]:
    """Seeds from a number, a list of numbers, or their text with commas.

    >>> read_seeds("0,1,2"), read_seeds([4, 5]), read_seeds(7)
    ((0, 1, 2), (4, 5), (7,))
    """
    given = value.split(",") if isinstance(value, str) else value if isinstance(value, list | tuple) else [value]
    try:
        seeds = tuple(int(seed) for seed in given if not isinstance(seed, bool | float))
    except (TypeError, ValueError):
        seeds = ()
    if len(seeds) != len(given) or min(seeds, default=0) < 0:
        raise InputError(f"seeds must be numbers from 0 up, as in 0,1,2; got {value!r}")
    return seeds
