"""Files written whole or not at all, and checks of a path before anything is read or written."""

from __future__ import annotations

import hashlib
import os
import platform
import re
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import TypeAlias

from dsal.errors import FileFormatError

StrPath: TypeAlias = "str | os.PathLike[str]"
_TEMPORARY = re.compile(r"\.[0-9a-f]{8}-(?P<process>\d{1,9})-[0-9a-f]{8}\.tmp")


@contextmanager
def atomic_write(path: StrPath) -> Iterator[Path]:
    """Yield a temporary path; what is written there replaces ``path`` in one step at the end.

    If the block raises, or the process dies, ``path`` is unchanged. The temporary path is in a hidden folder beside
    ``path``. A process that is killed leaves it behind; the next write beside it removes it. If ``path`` is a
    symbolic link, its target is replaced.

    Raises:
        OSError: see :func:`check_writable`; before anything is written.
    """
    path = check_writable(path)
    remove_leftovers(path.parent)
    folder = path.with_name(f".{secrets.token_hex(4)}-{os.getpid()}-{_machine()}.tmp")
    temporary = folder / path.name
    try:
        folder.mkdir()
        temporary.touch()
        mode = temporary.stat().st_mode  # according to the umask; safetensors would leave 0600
        yield temporary
        temporary.chmod(mode)
        flush_to_disk(temporary)
        os.replace(temporary, path)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    flush_to_disk(path.parent)  # the rename itself


def backup_path(path: Path) -> Path:
    """Return where :func:`keep_backup` keeps a file."""
    return path.with_name(f"{path.name}.bak")


def keep_backup(path: StrPath) -> None:
    """Keep a file, if there is one, as ``NAME.bak`` beside it, in place of an earlier one."""
    path = Path(os.path.realpath(path))
    if path.is_file():
        backup_path(path).unlink(missing_ok=True)
        try:
            os.link(path, backup_path(path))  # atomic_write replaces the file, so this remains what it is
        except OSError:  # a file system without links
            shutil.copy2(path, backup_path(path))


def write_text(path: StrPath, text: str) -> None:
    """Write a text file in UTF-8, atomically."""
    with atomic_write(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def remove_leftovers(folder: Path) -> None:
    """Remove what processes of this machine that no longer exist had begun to write into a folder."""
    if os.name != "posix":
        return  # no way to ask for a process without touching it
    for path in folder.glob(f".*-{_machine()}.tmp"):
        writer = _TEMPORARY.fullmatch(path.name)
        if writer is not None:
            try:
                os.kill(int(writer["process"]), 0)  # signal 0 only asks
            except ProcessLookupError:
                shutil.rmtree(path, ignore_errors=True)
            except OSError:
                pass  # it exists, and belongs to somebody else


def flush_to_disk(path: Path) -> None:
    """Wait until a file, or every creation, renaming and removal in a folder, is on disk."""
    if os.name != "posix" and path.is_dir():
        return  # other systems cannot open folders
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def check_writable(path: StrPath) -> Path:
    """Return the file that writing to ``path`` would create or replace: itself, or its link target.

    Commands call this before they start work that ends in a file.

    Raises:
        OSError: the file is read-only, or is a folder, pipe or device, or its folder is missing or read-only.
    """
    target = Path(os.path.realpath(path))
    if target.exists():
        if not target.is_file():
            raise OSError(f"cannot write {path}: it is {_file_type(target)}, not a file")
        if not target.stat().st_mode & 0o222 or not os.access(target, os.W_OK):
            raise PermissionError(f"cannot write {path}: it is read-only. Make it writable, or give another name")
    elif not target.parent.is_dir():
        raise FileNotFoundError(f"cannot write {path}: there is no folder {target.parent}")
    if not os.access(target.parent, os.W_OK | os.X_OK):
        raise PermissionError(f"cannot write {path}: the folder {target.parent} is read-only")
    return target


def check_readable(path: StrPath) -> Path:
    """Return ``path``, a file or a link to one.

    Raises:
        FileNotFoundError: it does not exist.
        FileFormatError: it is a folder, a pipe, a device or a socket: opening one of them may block for ever.
    """
    path = Path(path)
    if not path.is_file():
        if not path.exists():
            raise FileNotFoundError(f"no such file: {path}")
        raise FileFormatError(f"{path} is {_file_type(path)}, not a file")
    return path


def file_stamp(path: Path) -> tuple[int, int, int] | None:
    """Return a value that changes whenever the file is replaced; None if there is no file."""
    try:
        status = path.stat()
    except FileNotFoundError:
        return None
    return status.st_ino, status.st_mtime_ns, status.st_size


@cache
def _machine() -> str:
    """Return a name for this machine, or this container of it: here a process number means one process."""
    processes = Path("/proc/self/ns/pid")
    return hashlib.sha256(f"{platform.node()} {processes.exists() and processes.readlink()}".encode()).hexdigest()[:8]


def _file_type(path: Path) -> str:
    kinds = (("a folder", path.is_dir()), ("a FIFO", path.is_fifo()), ("a socket", path.is_socket()))
    return next((name for name, matches in kinds if matches), "a device")
