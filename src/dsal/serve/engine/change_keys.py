"""Keys of changes, kept as a note of the model: what was sent before is not done again.

They outlive a model whose first lesson was undone: in a hidden file, until the model is there again.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from dsal.files.atomic import write_text
from dsal.image_model import ImageModel
from dsal.serve.http_errors import Refusal

KEYS = "changes"  # name of the note, newest last
MOST_KEYS = 200
_MOST_BYTES = 2**22


def outcome_of(notes: dict[str, Any], key: str | None, digest: str | None = None) -> dict[str, Any] | None:
    """Return the outcome of the change with this key; None if it was not made.

    Raises:
        Refusal: the key belongs to a change with another digest.
    """
    made = next((entry for entry in _entries(notes) if entry["key"] == key), None)
    if made is not None and digest not in (None, made["digest"]):
        raise Refusal(422, "this Idempotency-Key was used for another change: use a new one")
    return None if made is None else made["outcome"]


def note_change(model: ImageModel, key: str, digest: str, outcome: dict[str, Any]) -> None:
    """Add a change to the notes of a model."""
    made = {"key": key, "digest": digest, "outcome": outcome}
    model.notes[KEYS] = [*_entries(model.notes), made][-MOST_KEYS:]


def keep_notes(path: Path, notes: dict[str, Any]) -> None:
    """Write the keys of a model that is about to be removed, whole or not at all."""
    if _entries(notes):
        write_text(_beside(path), json.dumps({KEYS: _entries(notes)}))


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


def _entries(notes: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the changes with a key, oldest first; a file from elsewhere may contain anything there."""
    entries, wanted = notes.get(KEYS), {"key": str, "digest": str, "outcome": dict}
    return [
        entry
        for entry in (entries if isinstance(entries, list) else [])
        if isinstance(entry, dict) and all(isinstance(entry.get(name), kind) for name, kind in wanted.items())
    ]
