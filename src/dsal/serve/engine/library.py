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
from weakref import WeakValueDictionary

import torch
from safetensors import SafetensorError, safe_open

from dsal.backbones import graphs
from dsal.backbones.backbone import Backbone
from dsal.backbones.hub import as_backbone
from dsal.base.memory import require
from dsal.errors import FileFormatError, InputError, MemoryNeededError
from dsal.files.atomic import file_stamp, flush_to_disk, remove_leftovers
from dsal.files.lock import model_lock
from dsal.image_model import ImageModel
from dsal.image_model.image_predictor import read_facts
from dsal.serve.engine.extractor import Extractor
from dsal.serve.engine.kept_notes import forget_notes, keep_notes, kept_notes
from dsal.serve.engine.names import model_names, model_path
from dsal.serve.engine.shelf import Shelf, Stamp
from dsal.serve.engine.snapshot import Snapshot
from dsal.serve.http_errors import Refusal
from dsal.serve.settings import Settings

Outcome: TypeAlias = "dict[str, Any]"
KEYS = "changes"  # name of the note that holds the keys of changes, newest last
MOST_KEYS = 200
_MAX_LEARNERS = 2  # models held in memory with their learning state


class Library:
    """Models by name. Reading threads get snapshots; changes are made one at a time, in one thread.

    Args:
        settings: settings of the server.
    """

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.folder = settings.folder
        self.shelf = Shelf(settings.memory)
        self._writing: str | None = None  # the model being written, whose file may be newer than its snapshot
        self._learners: dict[str, tuple[Stamp, ImageModel]] = {}  # only for the writing thread; newest last
        self._extractors: WeakValueDictionary[str, Extractor] = WeakValueDictionary()  # as long as a model needs them
        self._new: Extractor | None = None
        self._loading, self._sharing = threading.Lock(), threading.Lock()

    def names(self) -> list[str]:
        """Return the names of all models in the folder."""
        return model_names(self.folder)

    def listing(self) -> list[dict[str, Any]]:
        """Return name, size, time and classes of all models; only the headers of the files are read."""
        listed, names = [], self.names()
        self.shelf.retain(set(names))
        for name in names:
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
            self.shelf.drop(name)
            raise Refusal(404, f"there is no model {name!r}")
        if (held := self.held(name)) is not None:
            return held
        with self._loading:
            if (held := self.held(name)) is not None:
                return held
            model, extractor = self._load(path)
            snapshot = Snapshot.of(model, extractor)
            self.shelf.put(name, stamp, snapshot)
        return snapshot

    def held(self, name: str) -> Snapshot | None:
        """Return the snapshot of a model if it is in memory and its file has not changed; never blocks.

        While this process writes the file, return the previous snapshot, so that nobody waits for a lesson.
        """
        stamp, snapshot = self.shelf.get(name)
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
        with model_lock(path):
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
                if _entries(model.notes):
                    keep_notes(path, {KEYS: _entries(model.notes)})
                self._unlink(name, path)
            return outcome

    def outcome(self, name: str, key: str) -> Outcome | None:
        """Return the outcome of the change with this key; None if it was not made."""
        path = model_path(self.folder, name)
        made = _find_entry(self.snapshot(name).notes if path.exists() else kept_notes(path), key)
        return None if made is None else made["outcome"]

    def check(self, upload: Path) -> None:
        """Check an uploaded file like any model file; nothing of it stays in memory."""
        if read_facts(upload)["card"]["architecture"] == graphs.NAME and not self.settings.foreign_backbones:
            raise Refusal(
                422,
                "the model brings its own ONNX graph, which this server does not run: see --allow-foreign-backbones",
            )
        self._read(upload)

    def add(self, name: str, upload: Path) -> None:
        """Move a file that was checked to its name."""
        path = model_path(self.folder, name)
        with model_lock(path):
            if path.exists():
                raise Refusal(409, f"there is already a model {name!r}")
            os.replace(upload, path)
            flush_to_disk(path.parent)

    def remove(self, name: str) -> None:
        """Delete a model."""
        path = model_path(self.folder, name)
        with model_lock(path):
            if not path.exists():
                raise Refusal(404, f"there is no model {name!r}")
            self._unlink(name, path)
            forget_notes(path)

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
            model = ImageModel(self.extractor(name).backbone, expansion_size=self.settings.expansion_size)
            model.notes = kept_notes(path)
            return model
        if model is None or held != stamp:
            model, _ = self._load(path)
        model.backbone = self._shared(model.backbone).backbone  # the one that is in use now
        if not model.learns_on:
            raise Refusal(409, f"the model {name!r} was saved without its learning part: it can only predict")
        self._hold(name, stamp, model)
        return model

    def _write(self, name: str, path: Path, model: ImageModel) -> None:
        self._learners.pop(name, None)  # if writing fails, the file counts
        self._writing = name
        try:
            model.save(path)
            forget_notes(path)
            stamp = file_stamp(path)
            if stamp is not None:
                self._hold(name, stamp, model)
                self.shelf.put(name, stamp, Snapshot.of(model, self._shared(model.backbone)))
        finally:
            self._writing = None
        if gc.get_freeze_count():  # after gc.freeze() this is fast: see server.run
            gc.collect()  # exceptions in reference cycles would keep old snapshots in memory for hours

    def _unlink(self, name: str, path: Path) -> None:
        path.unlink()
        flush_to_disk(path.parent)
        self._learners.pop(name, None)
        self.shelf.drop(name)

    def _hold(self, name: str, stamp: Stamp, model: ImageModel) -> None:
        self._learners[name] = stamp, model
        for oldest in list(self._learners)[:-_MAX_LEARNERS]:
            del self._learners[oldest]

    def _load(self, path: Path) -> tuple[ImageModel, Extractor]:
        model = self._read(path)
        extractor = self._shared(model.backbone)
        model.backbone = extractor.backbone
        return model, extractor

    def _read(self, path: Path) -> ImageModel:
        needed = 3 * path.stat().st_size
        require(needed, torch.device("cpu"), f"reading {path.name}")
        if needed > self.settings.memory:
            raise MemoryNeededError(
                f"reading this model takes {needed / 1e9:.1f} GB: start the server with more --memory"
            )
        model = ImageModel.load(path)
        if not model.classes:
            raise FileFormatError("this model has no classes, so it cannot be served")
        if not all(isinstance(label, str) for label in model.classes):
            raise FileFormatError("the class names of this model are not text, so it cannot be served")
        return model

    def _shared(self, backbone: Backbone) -> Extractor:
        """Return the extractor of this backbone, shared by all models that use it."""
        known = next((each for each in list(self._extractors.values()) if each.backbone is backbone), None)
        if known is not None:
            return known
        fingerprint = backbone.fingerprint()
        with self._sharing:
            extractor = self._extractors.get(fingerprint)
            if extractor is None:
                extractor = self._extractors[fingerprint] = Extractor(backbone)
            return extractor


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
