"""Print text that may contain names from files: control characters are escaped, so that no name steers a terminal."""

from __future__ import annotations

import json
import re
from typing import Any

import typer

_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def printable(text: object) -> str:
    r"""Return text with control characters and changes of direction as in JSON; lines and tabs stay.

    >>> print(printable("a\x1b[2Jb"))
    a\u001b[2Jb
    """
    return _CONTROL.sub(lambda match: f"\\u{ord(match[0]):04x}", str(text))


def say_json(value: Any) -> None:
    """Print a JSON document for other programs to stdout."""
    say(json.dumps(value, indent=2, ensure_ascii=False))


def say(text: object = "", *, err: bool = False, nl: bool = True) -> None:
    """Print to stdout, or to stderr."""
    typer.echo(printable(text), err=err, nl=nl)
