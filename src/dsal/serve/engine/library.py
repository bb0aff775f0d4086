"""The models in a folder: loaded on demand, changed by one writer, and on disk before a change is acknowledged."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeAlias
from weakref import WeakValueDictionary

from safetensors import SafetensorError, safe_open

from dsal.backbones import graphs
from dsal.backbones.backbone import Backbone
from dsal.backbones.pretrained import as_backbone
from dsal.errors import FileFormatError, InputError
from dsal.files.atomic import backup_path, file_stamp, flush_to_disk, remove_leftovers
from dsal.files.lock import model_lock
from dsal.image_model import ImageModel
from dsal.image_model.image_predictor import check_predicts, read_facts
from dsal.serve.engine.change_keys import forget_notes, keep_notes, kept_notes, note_change, outcome_of
from dsal.serve.engine.extractor import Extractor
from dsal.serve.engine.names import model_names, model_path
from dsal.serve.engine.records import Journal
from dsal.serve.engine.snapshots import Shelf, Snapshot
from dsal.serve.http_errors import Refusal
from dsal.serve.settings import Settings

Outcome: TypeAlias = "dict[str, Any]"
_READING = 3  # bytes of memory for each byte of a file that is read
_LEARNING = 6  # bytes of memory for each byte of a stream's triangle, while a lesson is learned


class Library:
    """Models by name. Reading threads get snapshots; changes are made one at a time, in one thread.

    Args:
        settings: settings of the server.
    """

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.folder = settings.folder
        self.shelf = Shelf(settings.memory)
        self.journal = Journal(settings.audit_log or settings.folder / ".audit.jsonl")
        self._writing: str | None = None  # the model being written, whose file may be newer than its snapshot
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
                status, classes = path.stat(), _header(path)["classes"]
                listed.append({"name": name, "bytes": status.st_size, "modified": status.st_mtime, "classes": classes})
        return listed

    def version(self, name: str) -> str | None:
        """Return the version of a model as last written (see ``ImageModel.version_id``); None if there is no model."""
        path = model_path(self.folder, name)
        if (held := self.held(name)) is not None:
            return str(held.facts["version"])
        return _header(path)["version"] if path.is_file() else None

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
        stamp, snapshot = self.shelf.get(Snapshot, name)
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
            made = outcome_of(model.notes, key, digest)
            if made is not None:
                return {**made, "repeated": True}
            with self.shelf.room(_LEARNING * 8 * model.classifier.expansion_size**2, "this change"):
                outcome = action(model)
            if key is not None:
                note_change(model, key, digest, outcome)
            if model.classes:
                self._write(name, path, model)
            else:  # the first lesson was undone
                keep_notes(path, model.notes)
                self._unlink(name, path)
            what = outcome.get("changed") or (model.history[0].change if model.history else "changed")
            self.journal.write(model=name, change=what, version=model.version_id)
            return outcome

    def outcome(self, name: str, key: str) -> Outcome | None:
        """Return the outcome of the change with this key; None if it was not made."""
        path = model_path(self.folder, name)
        return outcome_of(self.snapshot(name).notes if path.exists() else kept_notes(path), key)

    def check(self, upload: Path) -> None:
        """Check an uploaded file like any model file; nothing of it stays in memory."""
        if read_facts(upload)["card"]["architecture"] == graphs.NAME and not self.settings.foreign_backbones:
            raise Refusal(
                422,
                "the model brings its own ONNX graph, which this server does not run: see --allow-foreign-backbones",
            )
        check_predicts(self._read(upload))

    def add(self, name: str, upload: Path) -> None:
        """Move a file that was checked to its name."""
        path = model_path(self.folder, name)
        with model_lock(path):
            if path.exists():
                raise Refusal(409, f"there is already a model {name!r}")
            os.replace(upload, path)
            flush_to_disk(path.parent)
            self.journal.write(model=name, change="uploaded", version=_header(path)["version"])

    def remove(self, name: str) -> None:
        """Delete a model."""
        path = model_path(self.folder, name)
        with model_lock(path):
            if not path.exists():
                raise Refusal(404, f"there is no model {name!r}")
            version = _header(path)["version"]
            self._unlink(name, path)
            forget_notes(path)
            backup_path(path).unlink(missing_ok=True)
            self.journal.write(model=name, change="deleted", version=version)

    def tidy(self) -> None:
        """Remove partly written files that a killed server left behind."""
        remove_leftovers(self.folder)
        for path in self.folder.glob(".upload-*.tmp"):
            path.unlink(missing_ok=True)

    def _learner(self, name: str, path: Path, create: bool) -> ImageModel:
        """Return the model with its learning state, as it is on disk now; the caller holds its lock."""
        stamp = file_stamp(path)
        if stamp is None:
            if not create:
                raise Refusal(404, f"there is no model {name!r}")
            model = ImageModel(self.extractor(name).backbone, expansion_size=self.settings.expansion_size)
            model.notes = kept_notes(path)
            return model
        held, found = self.shelf.get(ImageModel, name)
        model = found if found is not None and held == stamp else self._load(path)[0]
        model.backbone = self._shared(model.backbone).backbone  # the one that is in use now
        if not model.learns_on:
            raise Refusal(409, f"the model {name!r} was saved without its learning part: it can only predict")
        self.shelf.put(name, stamp, model)
        return model

    def _write(self, name: str, path: Path, model: ImageModel) -> None:
        self.shelf.drop(name, ImageModel)  # if writing fails, the file counts
        self._writing = name
        try:
            model.save(path)
            forget_notes(path)
            stamp = file_stamp(path)
            if stamp is not None:
                self.shelf.put(name, stamp, model)
                self.shelf.put(name, stamp, Snapshot.of(model, self._shared(model.backbone)))
        finally:
            self._writing = None

    def _unlink(self, name: str, path: Path) -> None:
        path.unlink()
        flush_to_disk(path.parent)
        self.shelf.drop(name)

    def _load(self, path: Path) -> tuple[ImageModel, Extractor]:
        model = self._read(path)
        extractor = self._shared(model.backbone)
        model.backbone = extractor.backbone
        return model, extractor

    def _read(self, path: Path) -> ImageModel:
        with self.shelf.room(_READING * path.stat().st_size, f"reading {path.name}"):
            model = ImageModel.load(path)
        if not model.classes:
            raise FileFormatError("this model has no classes, so it cannot be served")
        if not all(isinstance(label, str) for label in model.classes):
            raise FileFormatError("the class names of this model are not text, so it cannot be served")
        try:
            model.predictor()
        except (ArithmeticError, ValueError) as error:  # LinAlgError is a ValueError
            raise FileFormatError(f"this model cannot predict: {error}") from error
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


def _header(path: Path) -> dict[str, Any]:
    """Return version and class names from the header of a model file; nothing if it cannot be read."""
    try:
        with safe_open(path, framework="numpy") as file:
            meta = json.loads(json.loads(file.metadata()["dsal"])["meta"])
            return {
                "version": str(meta["version_id"]),
                "classes": [str(label) for label in meta["classifier"]["classes"]],
            }
    except (OSError, SafetensorError, ValueError, KeyError, TypeError, RecursionError):
        return {"version": None, "classes": []}
