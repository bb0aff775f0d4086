"""JSON files: written whole or not at all, checked when they are read."""

from __future__ import annotations

import json
from typing import Any

from dsal.errors import FileFormatError
from dsal.files.atomic import StrPath, check_readable, write_text
from dsal.files.schema import Fact, Mismatch, parse_json

_JSON_BYTES = 2**26


def write_json(path: StrPath, value: Any) -> None:
    """Write a JSON file, atomically; numbers must be finite."""
    write_text(path, json.dumps(value, indent=1, allow_nan=False) + "\n")


def read_json(path: StrPath, fact: Fact) -> Any:
    """Read a JSON file.

    Raises:
        FileNotFoundError: there is no such file.
        FileFormatError: it is truncated or corrupt, too large, or does not match ``fact``.
    """
    path = check_readable(path)
    try:
        if path.stat().st_size > _JSON_BYTES:
            raise Mismatch(f"it has more than {_JSON_BYTES} bytes")
        value = parse_json(path.read_text(encoding="utf-8"))
        fact.check(value, "the document")
    except (Mismatch, UnicodeDecodeError) as error:
        raise FileFormatError(f"{path} cannot be used: {error}") from error
    return value
