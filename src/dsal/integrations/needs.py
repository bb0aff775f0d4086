"""Import another program's package, or say what to install."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from dsal.errors import InputError


def needs(module: str, extra: str) -> Any:
    """Return a module; raise :class:`InputError` with the extra to install if it cannot be imported.

    >>> needs("json", "nothing").dumps([1])
    '[1]'
    """
    try:
        return import_module(module)
    except ImportError as error:
        package = module.partition(".")[0]
        raise InputError(
            f"this needs the package {package}, which cannot be imported ({error}): pip install 'dsal-learn[{extra}]'"
        ) from error
