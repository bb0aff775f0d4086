"""A lock that allows one writer per model file, across processes and threads.

It is an operating-system lock on a hidden file next to the model (``.m.dsal.lock``), so it is released when a process
dies, even by ``kill -9``. The model file itself cannot be locked, because saving replaces that file.

Not by the package filelock (tried: 4.2). It gives up the lock of a killed process and refuses links, too. But it leaves
the lock file behind, creates missing folders, falls back to a lock that outlives its process where the file system has
none, and takes 0.1 s to import.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from dsal.errors import InputError, ModelBusyError
from dsal.files.atomic import StrPath

_PAUSE = 0.05  # seconds between two attempts


@contextmanager
def model_lock(path: StrPath, wait: float | None = None) -> Iterator[None]:
    """Hold the lock of a model file while the block runs; readers need no lock.

    Not reentrant.

    Args:
        path: the model file; it need not exist yet.
        wait: seconds to wait for another writer; with None, raise at once.

    Raises:
        ModelBusyError: another writer holds the lock and did not finish in time.
        InputError: the folder does not exist or cannot be written to.
    """
    target = Path(os.path.realpath(path))
    lock = target.with_name(f".{target.name}.lock")
    deadline = time.monotonic() + (wait or 0.0)
    while (descriptor := _acquire(lock, Path(path))) is None:
        if time.monotonic() >= deadline:
            waited = f" after {wait:g} s" if wait else ""
            raise ModelBusyError(f"{path} is still being written by another process{waited}: wait longer, or try again")
        time.sleep(_PAUSE)
    try:
        yield
    finally:
        if sys.platform != "win32":  # Windows cannot remove an open file; a stale lock file is harmless
            with suppress(OSError):
                lock.unlink()
        os.close(descriptor)


def _acquire(lock: Path, path: Path) -> int | None:
    """Lock the file and return its descriptor, or None if another writer holds the lock."""
    try:
        descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), 0o666)
    except OSError as error:
        if not path.parent.is_dir():
            raise InputError(f"there is no folder {path.parent} to write {path.name} to") from error
        raise InputError(f"cannot write {path.name} to the folder {path.parent}: {error.strerror}") from error
    # The previous holder may have removed the file after we opened it and before we locked it.
    if _lock(descriptor) and _same_file(descriptor, lock):
        return descriptor
    os.close(descriptor)
    return None


def _same_file(descriptor: int, lock: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), lock.stat())
    except FileNotFoundError:
        return False


if sys.platform == "win32":
    import msvcrt

    def _lock(descriptor: int) -> bool:
        try:
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        except OSError:
            return False
        return True

else:
    import fcntl

    def _lock(descriptor: int) -> bool:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True
