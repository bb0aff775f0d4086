"""The models of a folder: opened when asked for, changed by one writer, durable before anybody hears of it."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeAlias

import torch
from safetensors import SafetensorError, safe_open

from dsal.backbones.backbone import Backbone
from dsal.backbones.hub import as_backbone
from dsal.classifier import DSALClassifier
from dsal.errors import DSALError, FileFormatError, InputError, ModelBusyError
from dsal.images import ImageModel
from dsal.images.lock import model_lock
from dsal.memory import require
from dsal.serve.errors import Refusal
from dsal.serve.extractor import Extractor
from dsal.serve.names import model_names, model_path
from dsal.serve.settings import Settings
from dsal.serve.snapshot import Snapshot

Outcome: TypeAlias = "dict[str, Any]"
Stamp: TypeAlias = "tuple[int, int, int]"
KEYS = "changes"  # the note that holds the keys of changes, newest last
MOST_KEYS = 200
_LOCK_SECONDS = 30.0
_MOST_LEARNERS = 2  # models held in memory with all that learning needs


class Library:
    """Models by name. Reading threads get snapshots; changes are made one at a time, in one thread.

    Args:
        settings: of the server.
    """

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.folder = settings.folder
        self._snapshots: dict[str, tuple[Stamp, Snapshot]] = {}
        self._learners: dict[str, tuple[Stamp, ImageModel]] = {}  # of the writing thread alone; newest last
        self._extractors: dict[str, Extractor] = {}
        self._new: Extractor | None = None
        self._loading, self._sharing = threading.Lock(), threading.Lock()

    def names(self) -> list[str]:
        """All models of the folder."""
        return model_names(self.folder)

    def listing(self) -> list[dict[str, Any]]:
        """Name, size, time and classes of all models; of their files only the head is read."""
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
        """The model as it was last written, by us or by anybody else. May take seconds: not for the event loop."""
        path = model_path(self.folder, name)
        stamp = _stamp(path)
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
        """The model's snapshot if it is in memory and its file has not changed; at once."""
        stamp, snapshot = self._snapshots.get(name, (None, None))
        return snapshot if stamp is not None and stamp == _stamp(model_path(self.folder, name)) else None

    def extractor(self, name: str) -> Extractor:
        """The extractor of a model, or the one that new models get if there is no such model."""
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
        """Change a model and write it; what is returned is on the disk. A key that was used before changes nothing.

        Args:
            name: of the model.
            key: the client's name for this change.
            digest: a hash of what the change is, so that one key is not used for two.
            action: changes the model, all or nothing, and says what to answer.
            create: whether to make a model that is not there.
        """
        path = model_path(self.folder, name)
        try:
            with model_lock(path, wait=_LOCK_SECONDS):
                model = self._learner(name, path, create)
                made = _made(model.notes, key)
                if made is not None:
                    if made["digest"] != digest:
                        raise Refusal(422, "this Idempotency-Key was used for something else: take a new one")
                    return {**made["outcome"], "repeated": True}
                outcome = self._changed(name, model, action)
                if key is not None:
                    made = {"key": key, "digest": digest, "outcome": outcome}
                    model.notes[KEYS] = [*_entries(model.notes), made][-MOST_KEYS:]
                if model.classes:
                    self._write(name, path, model)
                else:  # the first lesson was undone
                    self._unlink(name, path)
                return outcome
        except ModelBusyError as error:
            raise Refusal(503, f"another program is writing the model {name!r}", retry_after=5) from error

    def outcome(self, name: str, key: str) -> Outcome | None:
        """What the change of this key came to, if it was made."""
        made = _made(self.snapshot(name).notes, key)
        return None if made is None else made["outcome"]

    def add(self, name: str, upload: Path) -> None:
        """Give an uploaded file, already on the disk, its name; read by the same checks as any model file."""
        path = model_path(self.folder, name)
        self._load(upload)
        with model_lock(path, wait=_LOCK_SECONDS):
            if path.exists():
                raise Refusal(409, f"there is a model {name!r} already")
            os.replace(upload, path)
            _sync_folder(path.parent)

    def remove(self, name: str) -> None:
        """Delete a model."""
        path = model_path(self.folder, name)
        with model_lock(path, wait=_LOCK_SECONDS):
            if not path.exists():
                raise Refusal(404, f"there is no model {name!r}")
            self._unlink(name, path)

    def tidy(self) -> None:
        """Remove what a killed server left half-written."""
        for path in self.folder.glob(".*.tmp"):
            with suppress(OSError):
                if time.time() - path.stat().st_mtime > 3600 or path.name.startswith(".upload-"):
                    path.unlink()
        for name in self.names():
            path = model_path(self.folder, name)
            with suppress(DSALError, OSError), model_lock(path):
                for left in self.folder.glob(f".{path.name}.*.tmp"):
                    left.unlink()

    def _learner(self, name: str, path: Path, create: bool) -> ImageModel:
        """The model with all that learning needs, as it is on the disk now; the caller holds its lock."""
        stamp = _stamp(path)
        held, model = self._learners.pop(name, (None, None))
        if stamp is None:
            if not create:
                raise Refusal(404, f"there is no model {name!r}")
            return ImageModel(
                self.extractor(name).backbone, DSALClassifier(expansion_size=self.settings.expansion_size)
            )
        if model is None or held != stamp:
            model, _ = self._load(path)
        if not model.learns_on:
            raise Refusal(409, f"the model {name!r} was saved without what learning needs: it can only predict")
        self._keep(name, stamp, model)
        return model

    def _changed(self, name: str, model: ImageModel, action: Callable[[ImageModel], Outcome]) -> Outcome:
        try:
            return action(model)
        except DSALError:
            raise  # a mistake with a name: the model is what it was
        except BaseException:
            self._learners.pop(name, None)
            raise

    def _write(self, name: str, path: Path, model: ImageModel) -> None:
        self._learners.pop(name, None)  # should writing fail, the file is what counts
        model.save(path)
        stamp = _stamp(path)
        if stamp is not None:
            self._keep(name, stamp, model)
            self._snapshots[name] = stamp, Snapshot.of(model, self._shared(model.backbone))

    def _unlink(self, name: str, path: Path) -> None:
        path.unlink()
        _sync_folder(path.parent)
        self._learners.pop(name, None)
        self._snapshots.pop(name, None)

    def _keep(self, name: str, stamp: Stamp, model: ImageModel) -> None:
        self._learners[name] = stamp, model
        for oldest in list(self._learners)[:-_MOST_LEARNERS]:
            del self._learners[oldest]

    def _load(self, path: Path) -> tuple[ImageModel, Extractor]:
        require(3 * path.stat().st_size, torch.device("cpu"), f"reading {path.name}")
        model = ImageModel.load(path)
        if not model.classes or not all(isinstance(label, str) for label in model.classes):
            raise FileFormatError("the classes of this model are not named by text: it cannot be served")
        extractor = self._shared(model.backbone)
        model.backbone = extractor.backbone
        return model, extractor

    def _shared(self, backbone: Backbone) -> Extractor:
        """The extractor of this backbone, from the first model that brought it."""
        fingerprint = backbone.fingerprint()
        with self._sharing:
            if fingerprint not in self._extractors:
                self._extractors[fingerprint] = Extractor(backbone)
            return self._extractors[fingerprint]


def check_label(model: ImageModel, label: str) -> None:
    """Refuse a class that the model does not have."""
    if label not in model.classes:
        raise InputError(f"there is no class {label!r}")


def _entries(notes: dict[str, Any]) -> list[dict[str, Any]]:
    """Changes with a key, oldest first; a file from elsewhere may hold anything there."""
    entries = notes.get(KEYS)
    if not isinstance(entries, list):
        return []
    wanted = {"key": str, "digest": str, "outcome": dict}
    return [
        entry
        for entry in entries
        if isinstance(entry, dict) and all(isinstance(entry.get(name), kind) for name, kind in wanted.items())
    ]


def _made(notes: dict[str, Any], key: str | None) -> dict[str, Any] | None:
    """The change that was made under this key."""
    return next((entry for entry in _entries(notes) if entry["key"] == key), None)


def _labels(path: Path) -> list[str]:
    """Class names in the head of a model file; none if it cannot be read."""
    try:
        with safe_open(path, framework="numpy") as file:
            meta = json.loads(json.loads(file.metadata()["dsal"])["meta"])
            return [str(label) for label in meta["classifier"]["classes"]]
    except (OSError, SafetensorError, ValueError, KeyError, TypeError):
        return []


def _stamp(path: Path) -> Stamp | None:
    """What changes whenever the file is replaced; None if there is none."""
    try:
        status = path.stat()
    except FileNotFoundError:
        return None
    return status.st_ino, status.st_mtime_ns, status.st_size


def _sync_folder(folder: Path) -> None:
    if os.name == "posix":
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
