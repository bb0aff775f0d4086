"""The models in a folder: loaded on demand, changed by one writer, and on disk before a change is acknowledged."""

from __future__ import annotations

import gc
import json
import os
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeAlias

import torch
from safetensors import SafetensorError, safe_open

from dsal.backbones.backbone import Backbone
from dsal.backbones.hub import as_backbone
from dsal.base.memory import require
from dsal.errors import FileFormatError, InputError, ModelBusyError
from dsal.files.atomic import file_stamp, flush_to_disk, remove_leftovers
from dsal.files.lock import model_lock
from dsal.image_model import ImageModel
from dsal.serve.engine.extractor import Extractor
from dsal.serve.engine.names import model_names, model_path
from dsal.serve.engine.snapshot import Snapshot
from dsal.serve.http_errors import Refusal
from dsal.serve.settings import Settings

Outcome: TypeAlias = "dict[str, Any]"
Stamp: TypeAlias = "tuple[int, int, int]"
KEYS = "changes"  # name of the note that holds the keys of changes, newest last
MOST_KEYS = 200
_LOCK_SECONDS = 30.0
_MAX_LEARNERS = 2  # models held in memory with their learning state


class Library:
    """Models by name. Reading threads get snapshots; changes are made one at a time, in one thread.

    Args:
        settings: settings of the server.
    """

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.folder = settings.folder
        self._snapshots: dict[str, tuple[Stamp, Snapshot]] = {}
        self._writing: str | None = None  # the model being written, whose file may be newer than its snapshot
        self._learners: dict[str, tuple[Stamp, ImageModel]] = {}  # only for the writing thread; newest last
        self._extractors: dict[str, Extractor] = {}
        self._new: Extractor | None = None
        self._loading, self._sharing = threading.Lock(), threading.Lock()

    def names(self) -> list[str]:
        """Return the names of all models in the folder."""
        return model_names(self.folder)

    def listing(self) -> list[dict[str, Any]]:
        """Return name, size, time and classes of all models; only the headers of the files are read."""
        listed = []
        for name in self.names():
            path = model_path(self.folder, name)
            with suppress(FileNotFoundError):  # deleted since it was listed
                status = path.stat()
                listed.append(
                    {"name": name, "bytes": status.st_size, "modified": status.st_mtime, "classes": _labels(path)}
                )
        return listed

    def snapshot(self, name: str) -> Snapshot:
        """Return the model as last written, by this or another process. May take seconds: not for the event loop."""
        path = model_path(self.folder, name)
        stamp = file_stamp(path)
        if stamp is None:
            raise Refusal(404, f"there is no model {name!r}")
        if (held := self.held(name)) is not None:
            return held
        with self._loading:
            if (held := self.held(name)) is not None:
                return held
            model, extractor = self._load(path)
            snapshot = Snapshot.of(model, extractor)
            self._snapshots[name] = stamp, snapshot
        return snapshot

    def held(self, name: str) -> Snapshot | None:
        """Return the snapshot of a model if it is in memory and its file has not changed; never blocks.

        While this process writes the file, return the previous snapshot, so that nobody waits for a lesson.
        """
        stamp, snapshot = self._snapshots.get(name, (None, None))
        if stamp is None or self._writing == name:
            return snapshot
        return snapshot if stamp == file_stamp(model_path(self.folder, name)) else None

    def extractor(self, name: str) -> Extractor:
        """Return the extractor of a model, or that of new models if the model does not exist."""
        path = model_path(self.folder, name)
        if path.exists():
            return self.snapshot(name).extractor
        with self._loading:
            if self._new is None:
                self._new = self._shared(as_backbone(self.settings.backbone))
        return self._new

    def change(
        self, name: str, key: str | None, digest: str, action: Callable[[ImageModel], Outcome], create: bool = False
    ) -> Outcome:
        """Change a model, write it to disk and return the outcome. A key that was used before changes nothing.

        Args:
            name: name of the model.
            key: the client's idempotency key for this change.
            digest: a hash of the change, to detect a key that is used for two different changes.
            action: changes the model, all or nothing, and returns the outcome.
            create: whether to create the model if it does not exist.
        """
        path = model_path(self.folder, name)
        try:
            with model_lock(path, wait=_LOCK_SECONDS):
                model = self._learner(name, path, create)
                made = _find_entry(model.notes, key)
                if made is not None:
                    if made["digest"] != digest:
                        raise Refusal(422, "this Idempotency-Key was used for another change: use a new one")
                    return {**made["outcome"], "repeated": True}
                outcome = action(model)
                if key is not None:
                    made = {"key": key, "digest": digest, "outcome": outcome}
                    model.notes[KEYS] = [*_entries(model.notes), made][-MOST_KEYS:]
                if model.classes:
                    self._write(name, path, model)
                else:  # the first lesson was undone
                    self._unlink(name, path)
                return outcome
        except ModelBusyError as error:
            raise Refusal(503, f"another program is writing the model {name!r}: try again", retry_after=5) from error

    def outcome(self, name: str, key: str) -> Outcome | None:
        """Return the outcome of the change with this key; None if it was not made."""
        made = _find_entry(self.snapshot(name).notes, key)
        return None if made is None else made["outcome"]

    def add(self, name: str, upload: Path) -> None:
        """Check an uploaded file like any model file, and move it to its name."""
        path = model_path(self.folder, name)
        self._load(upload)
        with model_lock(path, wait=_LOCK_SECONDS):
            if path.exists():
                raise Refusal(409, f"there is already a model {name!r}")
            os.replace(upload, path)
            flush_to_disk(path.parent)

    def remove(self, name: str) -> None:
        """Delete a model."""
        path = model_path(self.folder, name)
        with model_lock(path, wait=_LOCK_SECONDS):
            if not path.exists():
                raise Refusal(404, f"there is no model {name!r}")
            self._unlink(name, path)

    def tidy(self) -> None:
        """Remove partly written files that a killed server left behind."""
        remove_leftovers(self.folder)
        for path in self.folder.glob(".upload-*.tmp"):
            path.unlink(missing_ok=True)

    def _learner(self, name: str, path: Path, create: bool) -> ImageModel:
        """Return the model with its learning state, as it is on disk now; the caller holds its lock."""
        stamp = file_stamp(path)
        held, model = self._learners.pop(name, (None, None))
        if stamp is None:
            if not create:
                raise Refusal(404, f"there is no model {name!r}")
            return ImageModel(self.extractor(name).backbone, expansion_size=self.settings.expansion_size)
        if model is None or held != stamp:
            model, _ = self._load(path)
        if not model.learns_on:
            raise Refusal(409, f"the model {name!r} was saved without its learning part: it can only predict")
        self._hold(name, stamp, model)
        return model

    def _write(self, name: str, path: Path, model: ImageModel) -> None:
        self._learners.pop(name, None)  # if writing fails, the file counts
        self._writing = name
        try:
            model.save(path)
            stamp = file_stamp(path)
            if stamp is not None:
                self._hold(name, stamp, model)
                self._snapshots[name] = stamp, Snapshot.of(model, self._shared(model.backbone))
        finally:
            self._writing = None
        if gc.get_freeze_count():  # after gc.freeze() this is fast: see server.run
            gc.collect()  # exceptions in reference cycles would keep old snapshots in memory for hours

    def _unlink(self, name: str, path: Path) -> None:
        path.unlink()
        flush_to_disk(path.parent)
        self._learners.pop(name, None)
        self._snapshots.pop(name, None)

    def _hold(self, name: str, stamp: Stamp, model: ImageModel) -> None:
        self._learners[name] = stamp, model
        for oldest in list(self._learners)[:-_MAX_LEARNERS]:
            del self._learners[oldest]

    def _load(self, path: Path) -> tuple[ImageModel, Extractor]:
        require(3 * path.stat().st_size, torch.device("cpu"), f"reading {path.name}")
        model = ImageModel.load(path)
        if not model.classes:
            raise FileFormatError("this model has no classes, so it cannot be served")
        if not all(isinstance(label, str) for label in model.classes):
            raise FileFormatError("the class names of this model are not text, so it cannot be served")
        extractor = self._shared(model.backbone)
        model.backbone = extractor.backbone
        return model, extractor

    def _shared(self, backbone: Backbone) -> Extractor:
        """Return the extractor of this backbone, shared by all models that use it."""
        known = next((each for each in list(self._extractors.values()) if each.backbone is backbone), None)
        if known is not None:
            return known
        fingerprint = backbone.fingerprint()
        with self._sharing:
            if fingerprint not in self._extractors:
                self._extractors[fingerprint] = Extractor(backbone)
            return self._extractors[fingerprint]


def check_label(model: ImageModel, label: str) -> None:
    """Raise InputError if the model does not have this class."""
    if label not in model.classes:
        raise InputError(f"there is no class {label!r}")


def _entries(notes: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the changes with a key, oldest first; a file from elsewhere may contain anything there."""
    entries = notes.get(KEYS)
    if not isinstance(entries, list):
        return []
    wanted = {"key": str, "digest": str, "outcome": dict}
    return [
        entry
        for entry in entries
        if isinstance(entry, dict) and all(isinstance(entry.get(name), kind) for name, kind in wanted.items())
    ]


def _find_entry(notes: dict[str, Any], key: str | None) -> dict[str, Any] | None:
    """Return the change with this key; None if there is none."""
    return next((entry for entry in _entries(notes) if entry["key"] == key), None)


def _labels(path: Path) -> list[str]:
    """Return the class names in the header of a model file; none if it cannot be read."""
    try:
        with safe_open(path, framework="numpy") as file:
            meta = json.loads(json.loads(file.metadata()["dsal"])["meta"])
            return [str(label) for label in meta["classifier"]["classes"]]
    except (OSError, SafetensorError, ValueError, KeyError, TypeError):
        return []
