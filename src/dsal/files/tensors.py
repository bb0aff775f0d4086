"""Arrays with JSON metadata in one checksummed safetensors file.

A file holds named arrays and, under the single metadata key ``dsal``, a JSON document with the format version, the
SHA-256 of every array, one over these and the metadata, and the caller's metadata. So some of the arrays can be read
and checked without the others, and a new file can take over arrays of another one unread. Nothing is ever unpickled.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from io import BufferedReader
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from dsal.errors import FileFormatError
from dsal.files.atomic import StrPath, atomic_write, check_readable
from dsal.files.schema import (
    ANY_TABLE,
    Choice,
    Each,
    Header,
    Mismatch,
    Number,
    Record,
    Schema,
    Text,
    check_headers,
    check_values,
    parse_json,
)  # fmt: skip

if TYPE_CHECKING:
    from torch import Tensor

AnyArray = TypeVar("AnyArray")  # an array, a tensor, or an array that is still in a file
FORMAT = 2
_KEY = "dsal"
_HEADER_BYTES = 2**24
_ARRAYS = 20_000
_TYPES = {
    **{f"F{bits}": f"float{bits}" for bits in (16, 32, 64)},
    **{
        f"{letter}{bits}": f"{kind}{bits}" for letter, kind in (("I", "int"), ("U", "uint")) for bits in (8, 16, 32, 64)
    },
    "BOOL": "bool",
}
_CODES = {np.dtype(name): code for code, name in _TYPES.items()}
_PIECE = 2**22  # bytes that are copied at a time
_ENTRY = Record(
    {
        "dtype": Choice(tuple(_TYPES)),
        "shape": Each(Number(0, 2**40, whole=True), most=8),
        "data_offsets": Each(Number(0, 2**60, whole=True), 2, 2),
    }
)
_DOCUMENT = Record(
    {"format": Number(whole=True), "sha256": Text(64), "meta": Text(_HEADER_BYTES)},
    optional={"arrays": Record({}, rest=Text(64))},  # not in other formats, which are refused
)


@dataclass(frozen=True)
class StoredArray:
    """An array in an open file of :func:`save_tensors` that has not been read.

    Attributes:
        name: its name in the file.
        dtype: its type.
        shape: its shape.
        digest: the SHA-256 that it must have.
        file: the open file.
        start: where it begins there, in bytes.
    """

    name: str
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    digest: str
    file: BufferedReader
    start: int

    @property
    def nbytes(self) -> int:
        """Size in bytes."""
        return int(np.prod(self.shape, dtype=np.int64)) * self.dtype.itemsize

    def read(self) -> NDArray[Any]:
        """Return the array; raise FileFormatError if it is not what was written."""
        array = np.empty(self.shape, self.dtype)
        self.file.seek(self.start)
        read = self.file.readinto(_bytes(array))
        if read != array.nbytes or _digest(self.name, array) != self.digest:
            raise self.damaged()
        return array

    def holds(self, array: NDArray[Any]) -> bool:
        """Return whether it is equal to an array, bit for bit, without reading it."""
        alike = (self.dtype, self.shape) == (array.dtype, array.shape)
        return alike and _digest(self.name, np.ascontiguousarray(array)) == self.digest

    def digest_as(self, name: str) -> str:
        """Return the SHA-256 that it has under another name; checked on the way, and not kept."""
        if name == self.name:
            return self.digest
        old, new = (_digest_of(each, self.dtype, self.shape) for each in (self.name, name))
        for piece in self.pieces():
            old.update(piece)
            new.update(piece)
        if old.hexdigest() != self.digest:
            raise self.damaged()
        return new.hexdigest()

    def pieces(self) -> Iterator[bytes]:
        """Yield its bytes."""
        for start in range(0, self.nbytes, _PIECE):
            self.file.seek(self.start + start)
            yield self.file.read(min(_PIECE, self.nbytes - start))

    def damaged(self) -> FileFormatError:
        """Return the error of an array that is not what was written."""
        return FileFormatError(
            f"{self.file.name} was changed after it was written: the SHA-256 of {self.name} does not match"
        )


def save_tensors(
    path: StrPath, tensors: Mapping[str, NDArray[Any] | Tensor | StoredArray], meta: dict[str, Any]
) -> None:
    """Write arrays and JSON metadata to one safetensors file, atomically.

    Args:
        path: file to write; its folder must exist.
        tensors: NumPy arrays, torch tensors, or arrays of an open file, by name. C-contiguous CPU data is written
            without a copy. A stored array is copied piece by piece, and checked if it gets another name.
        meta: anything JSON can hold. :func:`load_tensors` can require a certain ``meta["kind"]``.
    """
    arrays = {name: value if isinstance(value, StoredArray) else _as_array(value) for name, value in tensors.items()}
    text = json.dumps(meta, sort_keys=True)
    digests = {
        name: array.digest_as(name) if isinstance(array, StoredArray) else _digest(name, array)
        for name, array in sorted(arrays.items())
    }
    document = json.dumps({"format": FORMAT, "sha256": _joint_digest(digests, text), "arrays": digests, "meta": text})
    order = sorted(arrays, key=lambda name: (-arrays[name].dtype.itemsize, name))  # so that all are aligned
    header: dict[str, Any] = {"__metadata__": {_KEY: document}}
    end = 0
    for name in order:
        start, end = end, end + arrays[name].nbytes
        code = _CODES[arrays[name].dtype]
        header[name] = {"dtype": code, "shape": list(arrays[name].shape), "data_offsets": [start, end]}
    encoded = json.dumps(header, separators=(",", ":")).encode()
    encoded += b" " * (-len(encoded) % 8)
    with atomic_write(path) as temporary:
        try:
            with temporary.open("wb") as file:
                file.write(len(encoded).to_bytes(8, "little") + encoded)
                for array in map(arrays.__getitem__, order):
                    file.writelines(array.pieces() if isinstance(array, StoredArray) else [_bytes(array)])
        except OSError as error:  # a full disk, for example
            raise OSError(f"could not write {path}: {error}") from error


class OpenTensors(NamedTuple):
    """An open file: its arrays by name, its metadata, and the SHA-256 of everything."""

    arrays: dict[str, StoredArray]
    facts: dict[str, Any]
    sha256: str


@contextmanager
def open_tensors(path: StrPath, schema: Schema, *, truncated: bool = False) -> Iterator[OpenTensors]:
    """Open what :func:`save_tensors` wrote, to read or copy its arrays one by one; errors as in :func:`load_tensors`.

    The arrays are those of the file as it was when it was opened, even if it is replaced.

    Args:
        path: the file.
        schema: the schema it must match.
        truncated: whether to open a truncated file, too; the arrays that it lacks are then damaged.
    """
    path = check_readable(path)
    with path.open("rb") as file:
        try:
            headers, starts, document = _read_header(file, truncated)
            facts = _facts(document, schema)
            check_headers(headers, schema.expected(facts), schema.sizes(facts))
            digests = document.get("arrays", {})
            if digests.keys() != headers.keys() or _joint_digest(digests, document["meta"]) != document["sha256"]:
                raise Mismatch("it was changed after it was written: its SHA-256 does not match")
        except Mismatch as error:
            raise _unusable(path, schema, error) from error
        stored = {
            name: StoredArray(name, np.dtype(dtype), shape, digests[name], file, starts[name])
            for name, (dtype, shape) in headers.items()
        }
        yield OpenTensors(stored, facts, document["sha256"])


def load_tensors(
    path: StrPath, schema: Schema | None = None, *, kind: str | None = None, wanted: Callable[[str], bool] | None = None
) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
    """Read what :func:`save_tensors` wrote, as NumPy arrays and metadata, checked against ``schema``.

    Names, types and shapes are checked before memory is allocated for an array.

    Args:
        path: the file.
        schema: the schema it must match.
        kind: the kind it must be, if there is no schema.
        wanted: which arrays to read, by name; all by default. The others are neither read nor checked.

    Raises:
        FileNotFoundError: there is no such file.
        FileFormatError: the file is truncated, tampered with, not ours, of a later version, or not of this schema.
    """
    schema = schema or Schema(kind, ANY_TABLE, None)
    with open_tensors(path, schema) as opened:
        arrays = {name: array.read() for name, array in opened.arrays.items() if wanted is None or wanted(name)}
    try:
        check_values(arrays, schema.expected(opened.facts))
    except Mismatch as error:
        raise _unusable(path, schema, error) from error
    return arrays, opened.facts


def damaged_arrays(path: StrPath, schema: Schema) -> tuple[dict[str, Any], list[str], list[str]]:
    """Return the metadata of a file, the names of its whole arrays, and of those that are not what was written.

    Arrays are read one at a time, so this takes little memory.

    Raises:
        FileNotFoundError: there is no such file.
        FileFormatError: already the header is damaged, or of another kind or version.
    """
    whole, damaged = list[str](), list[str]()
    with open_tensors(path, schema, truncated=True) as opened:
        for name, array in opened.arrays.items():
            try:
                array.read()
                whole.append(name)
            except FileFormatError:
                damaged.append(name)
    return opened.facts, whole, damaged


def map_tensor(path: StrPath, schema: Schema) -> tuple[NDArray[Any], dict[str, Any], str]:
    """Return the only array of a file from :func:`save_tensors`, memory-mapped and read-only; metadata; its SHA-256.

    The whole file is read once, to check it, but not kept in memory.

    Raises:
        FileNotFoundError: there is no such file.
        FileFormatError: the file is truncated, tampered with, not ours, of a later version, or not of this schema.
    """
    with open_tensors(path, schema) as opened:
        (only,) = opened.arrays.values()
        array: NDArray[Any] = np.memmap(only.file, only.dtype, mode="r", offset=only.start, shape=only.shape)
    if _digest(only.name, array) != only.digest:
        raise only.damaged()
    return array, opened.facts, opened.sha256


def _read_header(file: BufferedReader, truncated: bool) -> tuple[dict[str, Header], dict[str, int], dict[str, Any]]:
    """Return the types and shapes of the arrays in a file, where each starts, and the document about them."""
    size, bytes_in_all = int.from_bytes(file.read(8), "little"), os.fstat(file.fileno()).st_size
    if size > min(_HEADER_BYTES, bytes_in_all):
        raise Mismatch("its header is longer than the file, or corrupt: is it a safetensors file?")
    try:
        header = parse_json(file.read(size).decode())
    except UnicodeDecodeError as error:
        raise Mismatch(f"its header is not text: {error}") from error
    if (
        not isinstance(header, dict)
        or not isinstance(about := header.pop("__metadata__", {}), dict)
        or _KEY not in about
    ):
        raise Mismatch("it was not written by dsal")
    if len(header) > _ARRAYS:
        raise Mismatch(f"it has more than {_ARRAYS} arrays")
    end, starts = 0, dict[str, int]()
    for name, entry in header.items():
        Text(500).check(name, "the name of an array")
        _ENTRY.check(entry, f"the header of {name[:80]}")
    for name, entry in sorted(header.items(), key=lambda item: item[1]["data_offsets"]):
        nbytes = math.prod(entry["shape"]) * np.dtype(_TYPES[entry["dtype"]]).itemsize
        if entry["data_offsets"] != [end, end + nbytes]:
            raise Mismatch(f"its header gives {name[:80]} another place than its size does")
        starts[name], end = 8 + size + end, end + nbytes
    if bytes_in_all != 8 + size + end and not truncated:
        raise FileFormatError(f"{file.name} is not a readable safetensors file, or is truncated")
    Text(_HEADER_BYTES).check(about[_KEY], "its metadata")
    document = parse_json(about[_KEY])
    _DOCUMENT.check(document, "its metadata")
    return {name: (_TYPES[entry["dtype"]], tuple(entry["shape"])) for name, entry in header.items()}, starts, document


def _unusable(path: StrPath, schema: Schema, error: Mismatch) -> FileFormatError:
    return FileFormatError(f"{path} is not a usable file of kind {schema.kind!r}: {error}")


def _facts(document: dict[str, Any], schema: Schema) -> dict[str, Any]:
    if document["format"] != FORMAT:
        other = document["format"]
        raise Mismatch(f"it has format version {other}; this version of dsal reads {FORMAT}: upgrade, or make it again")
    facts: dict[str, Any] = parse_json(document["meta"])
    if not isinstance(facts, dict) or schema.kind not in (None, facts.get("kind")):
        kind = facts.get("kind", "file without a kind") if isinstance(facts, dict) else facts
        raise Mismatch(f"it holds a {str(kind)[:80]!r}, not a {schema.kind!r}")
    schema.facts.check({name: value for name, value in facts.items() if name != "kind"}, "its metadata")
    return facts


def _joint_digest(digests: Mapping[str, str], text: str) -> str:
    """Return the SHA-256 of the metadata and the digests of all arrays."""
    return hashlib.sha256(json.dumps([text, sorted(digests.items())]).encode()).hexdigest()


def _digest(name: str, array: NDArray[Any]) -> str:
    """Return the SHA-256 of an array's name, type, shape and bytes."""
    digest = _digest_of(name, array.dtype, array.shape)
    digest.update(_bytes(array))
    return digest.hexdigest()


def _digest_of(name: str, dtype: np.dtype[Any], shape: tuple[int, ...]) -> hashlib._Hash:
    """Return the SHA-256 of an array without its bytes, to be updated with them."""
    return hashlib.sha256(f"\0{name}\0{dtype.str}\0{shape}\0".encode())


def _as_array(value: NDArray[Any] | Tensor) -> NDArray[Any]:
    array = value if isinstance(value, np.ndarray) else value.detach().cpu().numpy()
    return np.ascontiguousarray(array).reshape(array.shape)  # ascontiguousarray alone would turn () into (1,)


def _bytes(array: NDArray[Any]) -> memoryview:
    return array.reshape(-1).view(np.uint8).data


def flat(parts: Mapping[str, Mapping[str, AnyArray]]) -> dict[str, AnyArray]:
    """Return the arrays of all parts, each named ``part.name``."""
    return {f"{part}.{name}": array for part, arrays in parts.items() for name, array in arrays.items()}


def under(arrays: Mapping[str, AnyArray], name: str) -> dict[str, AnyArray]:
    """Return the arrays whose names start with ``name.``, without that prefix."""
    prefix = f"{name}."
    return {key.removeprefix(prefix): array for key, array in arrays.items() if key.startswith(prefix)}


def parted(arrays: Mapping[str, NDArray[Any]]) -> dict[str, dict[str, NDArray[Any]]]:
    """Return the parts that :func:`flat` joined."""
    parts: dict[str, dict[str, NDArray[Any]]] = {}
    for name, array in arrays.items():
        part, _, rest = name.partition(".")
        parts.setdefault(part, {})[rest] = array
    return parts
