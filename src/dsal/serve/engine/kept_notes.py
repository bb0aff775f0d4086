"""Keys of changes outlive a model whose first lesson was undone: in a hidden file, until the model is there again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from dsal.files.atomic import atomic_write, flush_to_disk

_MOST_BYTES = 2**22


def keep_notes(path: Path, notes: dict[str, Any]) -> None:
    """Write the notes of a model that is about to be removed, whole or not at all."""
    with atomic_write(_beside(path)) as temporary:
        temporary.write_text(json.dumps(notes))
    flush_to_disk(path.parent)


def kept_notes(path: Path) -> dict[str, Any]:
    """Return the notes of a model that is not there; empty if it never was."""
    try:
        beside = _beside(path)
        notes = json.loads(beside.read_bytes()) if beside.is_file() and beside.stat().st_size <= _MOST_BYTES else {}
    except (OSError, ValueError, RecursionError):
        return {}
    return notes if isinstance(notes, dict) else {}


def forget_notes(path: Path) -> None:
    """Remove the notes: the model has its own, or was deleted."""
    _beside(path).unlink(missing_ok=True)


def _beside(path: Path) -> Path:
    return path.with_name(f".{path.name}.notes")
