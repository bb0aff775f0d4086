"""Files that are whole or not there: atomic writing, and arrays + JSON in one checked safetensors file.

A file holds named arrays and, under the single metadata key ``dsal``, a JSON document with the format version, a
SHA-256 over arrays and metadata, and whatever the caller wants to remember. Nothing is ever unpickled.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dsal.errors import FileFormatError

if TYPE_CHECKING:
    from torch import Tensor

StrPath: TypeAlias = "str | os.PathLike[str]"
FORMAT = 1
_KEY = "dsal"


@contextmanager
def atomic_write(path: StrPath) -> Iterator[Path]:
    """Yield a temporary path beside ``path``; what is written there takes its place in one step at the end.

    If the block raises, or the process dies, ``path`` is what it was before (a dead process may leave a hidden
    ``.tmp`` file behind).
    """
    path = Path(path)
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    try:
        temporary.touch()
        mode = temporary.stat().st_mode  # as the umask wants it; safetensors would leave 0600
        yield temporary
        temporary.chmod(mode)
        _flush_to_disk(temporary)
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
    if os.name == "posix":
        _flush_to_disk(path.parent)  # the rename itself


def save_tensors(path: StrPath, tensors: Mapping[str, NDArray[Any] | Tensor], meta: dict[str, Any]) -> None:
    """Write arrays and JSON metadata to one safetensors file, atomically.

    Args:
        path: file to write; its folder must exist.
        tensors: NumPy arrays or torch tensors by name. C-contiguous CPU data is written without a copy.
        meta: anything JSON can hold. ``meta["kind"]``, where given, is what :func:`load_tensors` can insist on.
    """
    from safetensors import SafetensorError
    from safetensors.numpy import save_file

    arrays = {name: _as_array(value) for name, value in tensors.items()}
    text = json.dumps(meta, sort_keys=True)
    document = json.dumps({"format": FORMAT, "sha256": _digest(arrays, text), "meta": text})
    with atomic_write(path) as temporary:
        try:
            save_file(arrays, temporary, metadata={_KEY: document})
        except SafetensorError as error:  # the library's name for a full disk and the like
            raise OSError(f"could not write {path}: {error}") from error


def load_tensors(path: StrPath, kind: str | None = None) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
    """Read what :func:`save_tensors` wrote, as NumPy arrays and metadata.

    Raises:
        FileNotFoundError: there is no such file.
        FileFormatError: the file is torn, tampered with, not ours, of a later version, or not of this ``kind``.
    """
    from safetensors import SafetensorError, safe_open

    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"no such file: {path}")
    try:
        with safe_open(path, framework="numpy") as file:
            document = json.loads((file.metadata() or {})[_KEY])
            version, expected, text = document["format"], document["sha256"], document["meta"]
            if version != FORMAT:
                raise FileFormatError(
                    f"{path} has format version {version}; this version of dsal reads {FORMAT}. Upgrade dsal."
                )
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a mapping)
    except KeyError as error:
        raise FileFormatError(f"{path} was not written by dsal: its metadata lacks {error}") from error
    except (SafetensorError, json.JSONDecodeError, TypeError) as error:
        raise FileFormatError(f"{path} is not a readable safetensors file, or torn: {error}") from error
    if _digest(arrays, text) != expected:
        raise FileFormatError(f"{path} was changed after it was written: its SHA-256 does not match")
    meta: dict[str, Any] = json.loads(text)
    if kind is not None and meta.get("kind") != kind:
        raise FileFormatError(f"{path} holds a {meta.get('kind', 'nameless thing')!r}, not a {kind!r}")
    return arrays, meta


def _digest(arrays: Mapping[str, NDArray[Any]], text: str) -> str:
    """SHA-256 over the metadata and every array's name, type, shape and bytes."""
    digest = hashlib.sha256(text.encode())
    for name in sorted(arrays):
        array = arrays[name]
        digest.update(f"\0{name}\0{array.dtype.str}\0{array.shape}\0".encode())
        digest.update(array.reshape(-1).view(np.uint8).data)
    return digest.hexdigest()


def _as_array(value: NDArray[Any] | Tensor) -> NDArray[Any]:
    array = value if isinstance(value, np.ndarray) else value.detach().cpu().numpy()
    return np.ascontiguousarray(array).reshape(array.shape)  # ascontiguousarray alone would turn () into (1,)


def _flush_to_disk(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
