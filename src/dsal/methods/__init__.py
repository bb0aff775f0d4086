"""Class-incremental methods: one file each, in ``closed_form`` or ``network``, found by its line ``name = "..."``.

The line is read from the source, so that all names are known without importing any method; a method is imported when
its name is requested.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from importlib import import_module
from pathlib import Path

from dsal.base.registry import Registry
from dsal.methods.closed_form.kit.feature_method import ArrayMethod, FeatureMethod, keeps
from dsal.methods.contract import Method, Phase, State

_NAME = re.compile(r'^    name = "([^"]+)"$', re.MULTILINE)


def find_methods() -> dict[str, Callable[[], type[Method]]]:
    """Return a function that imports the method, by the name of each method.

    Raises:
        ValueError: two classes have the same name.
    """
    found: dict[str, Callable[[], type[Method]]] = {}
    for path in sorted(Path(__file__).parent.glob("*/*.py")):
        for name in _NAME.findall(path.read_text(encoding="utf-8")):
            if name in found:
                raise ValueError(f"method {name!r} is defined twice: in {path} and elsewhere")
            found[name] = partial(_import, f"{__name__}.{path.parent.name}.{path.stem}", name)
    return found


def _import(module: str, name: str) -> type[Method]:
    """Return the method of this name that a module defines."""
    for entry in vars(import_module(module)).values():
        if isinstance(entry, type) and issubclass(entry, Method) and vars(entry).get("name") == name:
            return entry
    raise ValueError(f"{module} has a line name = {name!r}, but no subclass of Method with it")


METHODS: Registry[type[Method]] = Registry("method", group="dsal.methods", find=find_methods)

__all__ = ["METHODS", "ArrayMethod", "FeatureMethod", "Method", "Phase", "State", "keeps"]
