"""Snapshots in memory, within a budget: the least recently used leave first, and backbones leave with them."""

from __future__ import annotations

import gc
import threading
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from torch import Tensor

from dsal.serve.engine.snapshot import Snapshot

Stamp: TypeAlias = "tuple[int, int, int]"
_COPIES = 2  # runtimes keep a second, packed copy of weights


class Shelf:
    """Snapshots by the name of their model.

    Args:
        memory: bytes that the process may take; the snapshots get half of them.
    """

    def __init__(self, memory: int) -> None:
        self.memory, self.share = memory, memory // 2
        self._held: dict[str, tuple[Stamp, Snapshot, int]] = {}  # least recently used first
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._held)

    def get(self, name: str) -> tuple[Stamp, Snapshot] | tuple[None, None]:
        """Return the snapshot of a model, and the stamp of the file it was made from."""
        with self._lock:
            found = self._held.pop(name, None)
            if found is None:
                return None, None
            self._held[name] = found
        return found[0], found[1]

    def put(self, name: str, stamp: Stamp, snapshot: Snapshot) -> None:
        """Hold a snapshot, and let go of others if there are too many."""
        size = _COPIES * _bytes([snapshot.__dict__[part] for part in snapshot.__dict__ if part != "extractor"])
        with self._lock:
            self._held.pop(name, None)
            self._held[name] = stamp, snapshot, size
            evicted = self._evict()
        if evicted and process_bytes() > self.memory:
            gc.collect()

    def drop(self, name: str) -> None:
        """Let go of a model."""
        with self._lock:
            self._held.pop(name, None)

    def retain(self, names: set[str]) -> None:
        """Let go of all other models: their files are gone."""
        with self._lock:
            for name in self._held.keys() - names:
                del self._held[name]

    def bytes(self) -> int:
        """Return the bytes of all snapshots and their backbones, each counted once."""
        backbones = {id(snapshot.extractor): snapshot.extractor.backbone for _, snapshot, _ in self._held.values()}
        weights = sum(_COPIES * _bytes(backbone.state_dict()) for backbone in backbones.values())
        return weights + sum(size for _, _, size in self._held.values())

    def _evict(self) -> bool:
        """Let go of the least recently used until the rest fits; never of the last one."""
        before = len(self._held)
        while len(self._held) > 1 and self.bytes() > self.share:
            del self._held[next(iter(self._held))]
        if process_bytes() > self.memory:  # whatever the reason: half of them go
            for name in list(self._held)[: len(self._held) // 2]:
                del self._held[name]
        return len(self._held) < before


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
