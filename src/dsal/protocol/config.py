"""``config.toml``: the effective configuration of a run, with the method and its options in a separate table.

    dataset = "cifar100-features"
    phases = 25
    ...

    [method]
    name = "ds-al"
    gamma = 0.1
    ...

In memory and in ``results.json`` the configuration is flat.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

import tomli_w

from dsal.errors import FileFormatError
from dsal.files.atomic import write_text
from dsal.protocol.experiment import Experiment

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

_TOP = {field.name for field in fields(Experiment)}


def write_config(out: Path, config: Mapping[str, Any]) -> None:
    """Write the effective configuration as TOML, which ``dsal run --config`` reads."""
    table = dict(config)
    if "method" in config:  # a comparison has none
        own = {name: value for name, value in config.items() if name not in _TOP}
        table = {name: value for name, value in config.items() if name not in own}
        table["method"] = {"name": table.pop("method"), **own}  # last: in TOML, tables follow plain keys
    write_text(out / "config.toml", tomli_w.dumps(table))


def read_config(out: Path) -> dict[str, Any] | None:
    """Return the flat configuration of the run in a folder; None if there is none."""
    path = out / "config.toml"
    if not path.exists():
        return None
    try:
        return flat(tomllib.loads(path.read_text(encoding="utf-8")))
    except (ValueError, RecursionError) as error:
        raise FileFormatError(f"{path} is not TOML: {error}") from error


def flat(table: Mapping[str, Any]) -> dict[str, Any]:
    """Return a configuration with the options of its method at the top level.

    >>> flat({"phases": 5, "method": {"name": "ncm", "metric": "cosine"}})
    {'phases': 5, 'metric': 'cosine', 'method': 'ncm'}
    """
    method = table.get("method", {})
    own = dict(method) if isinstance(method, Mapping) else {"name": method}
    named = {"method": own.pop("name")} if "name" in own else {}
    return {**{name: value for name, value in table.items() if name != "method"}, **own, **named}
