"""Models in memory: snapshots for predictions and models that learn, within one budget.

The least recently used leave first, and backbones leave with the last model that uses them.
"""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias, TypeVar, cast

import numpy as np
import torch
from torch import Tensor

from dsal.base.memory import require
from dsal.errors import MemoryNeededError
from dsal.image_model import ImageModel
from dsal.image_model.predictor import Predictor
from dsal.image_model.seen import Seen
from dsal.serve.engine.extractor import Extractor

Stamp: TypeAlias = "tuple[int, int, int]"
T = TypeVar("T", "Snapshot", ImageModel)
_COPIES = 2  # runtimes keep a second, packed copy of weights
_PATIENCE = 20.0  # seconds to wait until others need less memory
_MAX_PAIRS = 10


@dataclass(frozen=True, eq=False)
class Snapshot:
    """A model at one moment: what predictions need, unaffected by later lessons.

    Attributes:
        extractor: maps images to features; shared by all models with the same backbone.
        predictor: maps features to predictions.
        seen: the learned images.
        facts: the answer of ``info``, as JSON-compatible values.
        notes: the notes of the model.
    """

    extractor: Extractor
    predictor: Predictor
    seen: Seen
    facts: dict[str, Any]
    notes: dict[str, Any]

    @classmethod
    def of(cls, model: ImageModel, extractor: Extractor) -> Snapshot:
        """Return a snapshot of a model, sharing only parts that learning replaces and never modifies."""
        return cls(extractor, model.predictor().predictor, model.seen, facts(model), dict(model.notes))

    @property
    def classes(self) -> list[str]:
        """Labels in the order in which they were learned."""
        return list(self.predictor.classes)


class Shelf:
    """Snapshots and learning models by name.

    Args:
        memory: bytes that the process may take; what is on the shelf gets half of them.
    """

    def __init__(self, memory: int) -> None:
        self.memory, self.share = memory, memory // 2
        self._held: dict[tuple[type, str], tuple[Stamp, Any, int]] = {}  # least recently used first
        self._promised = 0  # bytes that are needed soon
        self._changed = threading.Condition()

    def __len__(self) -> int:
        return len({name for _, name in list(self._held)})

    def get(self, kind: type[T], name: str) -> tuple[Stamp, T] | tuple[None, None]:
        """Return what is held of a model, and the stamp of the file it was made from; never block the event loop."""
        found = self._held.pop((kind, name), None)
        if found is None:
            return None, None
        self._held[kind, name] = found
        return found[0], cast(T, found[1])

    def put(self, name: str, stamp: Stamp, thing: Snapshot | ImageModel) -> None:
        """Hold a snapshot or a model, and let go of others if there are too many."""
        size = _bytes([part for key, part in vars(thing).items() if key not in ("extractor", "backbone")])
        size *= _COPIES if isinstance(thing, Snapshot) else 1
        with self._changed:
            self._held.pop((type(thing), name), None)
            self._held[type(thing), name] = stamp, thing, size
            before = len(self._held)
            while len(self._held) > 1 and self.bytes() > self.share:
                self._evict()
            if process_bytes() > self.memory:  # whatever the reason: half of them go
                for _ in range(len(self._held) // 2):
                    self._evict()
            evicted = len(self._held) < before
        if evicted and process_bytes() > self.memory:
            gc.collect()

    def drop(self, name: str, *kinds: type[Snapshot | ImageModel]) -> None:
        """Let go of a model, or of the kinds of things that are held of it."""
        with self._changed:
            for kind in kinds or (Snapshot, ImageModel):
                self._held.pop((kind, name), None)

    def retain(self, names: set[str]) -> None:
        """Let go of all other models: their files are gone."""
        for name in {name for _, name in list(self._held)} - names:
            self.drop(name)

    def bytes(self) -> int:
        """Return the bytes of everything held, each backbone counted once."""
        held = list(self._held.values())
        backbones = {id(b): b for _, thing, _ in held for b in [getattr(thing, "extractor", thing).backbone]}
        return sum(_COPIES * _bytes(b.state_dict()) for b in backbones.values()) + sum(size for *_, size in held)

    @contextmanager
    def room(self, needed: int, purpose: str) -> Iterator[None]:
        """Promise memory to the block: others leave the shelf for it, or it waits until they need less.

        Whoever needs at most half of the memory gets it in the end, since an empty server takes some, too.

        Raises:
            MemoryNeededError: there is not that much.
        """
        require(needed, torch.device("cpu"), purpose)
        until = time.monotonic() + _PATIENCE
        with self._changed:
            while process_bytes() + self._promised + needed > self.memory:
                if self._held:
                    self._evict()
                    if not self._held:
                        gc.collect()
                elif not self._promised and needed <= self.share:
                    break  # one at a time goes on, whatever the process itself takes
                elif not self._promised or not self._changed.wait(until - time.monotonic()):
                    raise MemoryNeededError(
                        f"{purpose} takes {needed / 1e9:.2f} GB, more than the server has left: try again later, or "
                        "start it with more --memory"
                    )
            self._promised += needed
        try:
            yield
        finally:
            with self._changed:
                self._promised -= needed
                self._changed.notify_all()

    def _evict(self) -> None:
        for oldest in list(self._held)[:1]:
            self._held.pop(oldest, None)


def facts(model: ImageModel) -> dict[str, Any]:
    """Return classes, counts, sizes and leave-one-out results of a model."""
    head, card = model.classifier, model.backbone.card
    confused = [
        (images, label, answer)
        for label, answers in model.left_out.items()
        for answer, images in answers.items()
        if answer != label
    ]
    return {
        "classes": model.counts,
        "images": sum(model.counts.values()),
        "phases": head.n_phases_,
        "backbone": card.architecture,
        "channels": card.in_channels,
        "image_size": card.size,
        "expansion_size": head.expansion_size,
        "learns_on": model.learns_on,
        "left_out": [
            {"label": label, "images": sum(answers.values()), "right": answers.get(label, 0)}
            for label, answers in model.left_out.items()
        ],
        "confused": [
            {"label": label, "taken_for": answer, "images": images}
            for images, label, answer in sorted(confused, reverse=True)[:_MAX_PAIRS]
        ],
        "undo": [version.change for version in model.history],
        "redo": [version.change for version in model.undone],
        "history_bytes": model.history_bytes,
        "version": model.version_id,
    }


def process_bytes() -> int:
    """Return the resident memory of this process; 0 if the system does not tell."""
    try:
        import resource

        return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()
    except (ImportError, OSError, ValueError, IndexError):
        return 0


def _bytes(thing: Any, seen: set[int] | None = None) -> int:
    """Return the bytes of all arrays that an object refers to."""
    seen = set() if seen is None else seen
    if id(thing) in seen:
        return 0
    seen.add(id(thing))
    if isinstance(thing, Tensor):
        return thing.numel() * thing.element_size()
    if isinstance(thing, np.ndarray):
        return int(thing.nbytes)
    if isinstance(thing, dict):
        return sum(_bytes(value, seen) for value in thing.values())
    if isinstance(thing, list | tuple):
        return sum(_bytes(value, seen) for value in thing)
    if type(thing).__module__.partition(".")[0] in ("dsal", "torch") and hasattr(thing, "__dict__"):
        return _bytes(thing.__dict__, seen)
    return 0
