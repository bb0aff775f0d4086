"""Where an option's value comes from: command line, then file, then preset, then default."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_type_hints

from dsal.base.options import fit
from dsal.errors import InputError, UnknownNameError
from dsal.methods import METHODS
from dsal.protocol.experiment import Experiment, option_hints
from dsal.protocol.runs import flat_config

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
class RunOptions:
    """How to run an experiment; except for the presets, none of it changes the results."""

    out: str | None = None
    resume: bool = False
    json: bool = False
    report: bool = True
    tensorboard: bool = False
    mlflow: bool = False
    checkpoint_seconds: float = 30.0
    paper: bool = False
    quick: bool = False


def read_assignments(texts: Iterable[str]) -> dict[str, Any]:
    """Parse options of a method from texts like ``power=0.5``, by their Python names; what is not TOML is text.

    Raises:
        InputError: a text is not an assignment, or sets an option of the run.
    """
    table = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals:
            raise InputError(f"expected NAME=VALUE, as in power=0.5; got {text!r}")
        table[key.strip()] = _value(value.strip())
    return _of_method(table)


def read_comparison(path: Path) -> dict[str, Any]:
    """Read the options of a comparison from a TOML file.

    Its table ``[method]`` has options for all methods that accept them (``shared``), and a subtable for each method
    that has options of its own, such as ``[method.lwf]`` (``own``). Options that depend on K are in a subtable of that,
    such as ``[method.foster.k25]``.

    Raises:
        InputError: the file is missing or not TOML, or contains something that is not an option.
        UnknownNameError: it has options of a method that does not exist.
    """
    table = _read(path)
    methods = table.pop("method", {})
    own = {name: _of_method(options) for name, options in methods.items() if isinstance(options, dict)}
    shared = _of_method({name: value for name, value in methods.items() if not isinstance(value, dict)})
    known = {option for name in METHODS.names() for option in option_hints(name)}
    for name in shared:
        if name not in known:
            raise UnknownNameError("option of a method", name.replace("_", "-"), known)
    for name in own:
        METHODS.get(name)
    return {**{_name(key): value for key, value in table.items()}, "shared": shared, "own": own}


def read_options(path: Path) -> dict[str, Any]:
    """Read the options of a TOML file by their Python names, those of the method (table ``[method]``) included.

    Raises:
        InputError: the file is missing or not TOML, or the table contains an option of the run.
    """
    table = _read(path)
    if isinstance(table.get("method"), dict):
        table["method"] = _of_method(table["method"])
    return {_name(key): value for key, value in flat_config(table).items()}


def combine(given: Mapping[str, Any], filed: Mapping[str, Any]) -> tuple[Experiment, RunOptions]:
    """Combine options: the command line overrides a file, which overrides a preset, which overrides the defaults.

    Raises:
        InputError: an option belongs neither to the run nor to its method, or has the wrong type.
    """
    asked = {**filed, **given}
    run = {name: _checked(name, value) for name, value in asked.items() if name in _HINTS}
    handling = RunOptions(**{name: run.pop(name) for name in list(run) if name in _HANDLING})
    if handling.paper and handling.quick:
        raise InputError("use either --paper or --quick, not both")
    preset = PAPER if handling.paper else QUICK if handling.quick else {}
    taken = option_hints(run.get("method", Experiment.method))
    for name in asked:
        if name not in _HINTS and name not in taken:
            valid = (option.replace("_", "-") for option in (*_HINTS, *taken))
            raise UnknownNameError("option", name.replace("_", "-"), valid)
    values = {**preset, **asked, **run}
    options = {name: value for name, value in values.items() if name in taken}
    return Experiment(**{name: values[name] for name in values if name in _EXPERIMENT}, options=options), handling


_HANDLING = get_type_hints(RunOptions)
_EXPERIMENT = {name: hint for name, hint in get_type_hints(Experiment).items() if name != "options"}
_HINTS = {**_EXPERIMENT, **_HANDLING}


def _read(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(f"cannot read the configuration {path}: {error}") from error


def _name(key: str) -> str:
    return key.replace("-", "_")


def _value(text: str) -> Any:
    """Parse a text as TOML, or as a number that TOML writes differently, such as .5; else return the text."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except (ValueError, RecursionError):
        try:
            return float(text)
        except ValueError:
            return text


def _of_method(table: Mapping[str, Any]) -> dict[str, Any]:
    """Return options of a method by their Python names; raise :class:`InputError` if one belongs to the run."""
    named = {_name(key): _of_method(value) if isinstance(value, dict) else value for key, value in table.items()}
    for name in named:
        if name in _HINTS:
            raise InputError(
                f"{name.replace('_', '-')} is an option of the run, not of its method: "
                "in a file put it above [method], on the command line use its own flag"
            )
    return named


def _checked(name: str, value: Any) -> Any:
    """Return the value as the option's type, converted if the meaning is clear."""
    if name == "seeds":
        return read_seeds(value)
    if name == "class_order" and type(value) is int:
        return str(value)
    return fit(name, value, _HINTS[name])


def read_seeds(value: Any) -> tuple[int, ...]:
    """Parse seeds from a number, a list of numbers, or comma-separated text.

    >>> read_seeds("0,1,2"), read_seeds([4, 5]), read_seeds(7)
    ((0, 1, 2), (4, 5), (7,))
    """
    given = value.split(",") if isinstance(value, str) else value if isinstance(value, list | tuple) else [value]
    try:
        seeds = tuple(int(seed) for seed in given if not isinstance(seed, bool | float))
    except (TypeError, ValueError):
        seeds = ()
    if len(seeds) != len(given) or min(seeds, default=0) < 0:
        raise InputError(f"seeds must be integers, 0 or more, as in 0,1,2; got {value!r}")
    return seeds
