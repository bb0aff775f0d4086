"""Arrays with JSON metadata in one checksummed safetensors file.

A file holds named arrays and, under the single metadata key ``dsal``, a JSON document with the format version, the
SHA-256 of every array, one over these and the metadata, and the caller's metadata. So some of the arrays can be read
and checked without the others. Nothing is ever unpickled.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dsal.errors import FileFormatError
from dsal.files.atomic import StrPath, atomic_write, check_readable, file_stamp
from dsal.files.schema import (
    ANY_TABLE,
    Anything,
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

FORMAT = 2
_FIRST = 1  # of version 0.1, which was never published: one SHA-256 over everything
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
_ENTRY = Record(
    {"dtype": Choice(tuple(_TYPES)), "shape": Each(Number(0, 2**40, whole=True), most=8), "data_offsets": Anything()}
)
_DOCUMENT = Record(
    {"format": Number(whole=True), "sha256": Text(64), "meta": Text(_HEADER_BYTES)},
    optional={"arrays": Record({}, rest=Text(64))},  # not in other formats, which are refused
)


def save_tensors(path: StrPath, tensors: Mapping[str, NDArray[Any] | Tensor], meta: dict[str, Any]) -> None:
    """Write arrays and JSON metadata to one safetensors file, atomically.

    Args:
        path: file to write; its folder must exist.
        tensors: NumPy arrays or torch tensors by name. C-contiguous CPU data is written without a copy.
        meta: anything JSON can hold. :func:`load_tensors` can require a certain ``meta["kind"]``.
    """
    from safetensors import SafetensorError
    from safetensors.numpy import save_file

    arrays = {name: _as_array(value) for name, value in tensors.items()}
    text = json.dumps(meta, sort_keys=True)
    digests = {name: _digest(name, array) for name, array in sorted(arrays.items())}
    document = json.dumps({"format": FORMAT, "sha256": _joint_digest(digests, text), "arrays": digests, "meta": text})
    with atomic_write(path) as temporary:
        try:
            save_file(arrays, temporary, metadata={_KEY: document})
        except SafetensorError as error:  # raised for a full disk, for example
            raise OSError(f"could not write {path}: {error}") from error


def load_tensors(
    path: StrPath,
    schema: Schema | None = None,
    *,
    kind: str | None = None,
    wanted: Callable[[str], bool] | None = None,
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
    from safetensors import SafetensorError

    schema = schema or Schema(kind, ANY_TABLE, None)
    path = check_readable(path)
    for tries_left in (2, 1, 0):
        stamp = file_stamp(path)
        try:
            return _loaded(path, schema, wanted)
        except (Mismatch, SafetensorError) as error:
            if tries_left and stamp != file_stamp(path):
                continue  # replaced while being read: the header is from one file, the arrays from another
            if isinstance(error, Mismatch):
                raise FileFormatError(f"{path} is not a usable file of kind {schema.kind!r}: {error}") from error
            raise FileFormatError(f"{path} is not a readable safetensors file, or is truncated: {error}") from error
    raise AssertionError


def _loaded(
    path: Path, schema: Schema, wanted: Callable[[str], bool] | None
) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
    from safetensors import safe_open

    headers, document = _read_header(path)
    facts = _facts(document, schema)
    expected = schema.expected(facts)
    check_headers(headers, expected, schema.sizes(facts))
    names = [name for name in headers if wanted is None or wanted(name)]
    with safe_open(path, framework="numpy") as file:
        arrays = {name: file.get_tensor(name) for name in names}
    _check_digests(document, headers, arrays)
    check_values(arrays, expected)
    return arrays, facts


def damaged_arrays(path: StrPath, schema: Schema) -> tuple[dict[str, Any], list[str], list[str]]:
    """Return the metadata of a file, the names of its whole arrays, and of those that are not what was written.

    Arrays are read one at a time, so this takes little memory.

    Raises:
        FileNotFoundError: there is no such file.
        FileFormatError: already the header is damaged, or of another kind or version.
    """
    path = check_readable(path)
    try:
        headers, document = _read_header(path)
        facts = _facts(document, schema)
        check_headers(headers, schema.expected(facts), schema.sizes(facts))
        _check_digests(document, headers, {})
    except Mismatch as error:
        raise FileFormatError(f"{path} is not a usable file of kind {schema.kind!r}: {error}") from error
    whole, damaged = list[str](), list[str]()
    with path.open("rb") as file:
        size = int.from_bytes(file.read(8), "little")
        places = {name: entry["data_offsets"] for name, entry in json.loads(file.read(size)).items() if name in headers}
        for name, (dtype, shape) in headers.items():
            array = np.empty(shape, dtype)
            file.seek(8 + size + int(places[name][0]))
            read = file.readinto(array.reshape(-1).view(np.uint8).data)
            right = read == array.nbytes and _digest(name, array) == document["arrays"][name]
            (whole if right else damaged).append(name)
    return facts, whole, damaged


def map_tensor(path: StrPath, schema: Schema) -> tuple[NDArray[Any], dict[str, Any], str]:
    """Return the only array of a file from :func:`save_tensors`, memory-mapped and read-only; metadata; its SHA-256.

    The whole file is read once, to check it, but not kept in memory.

    Raises:
        FileNotFoundError: there is no such file.
        FileFormatError: the file is truncated, tampered with, not ours, of a later version, or not of this schema.
    """
    path = check_readable(path)
    try:
        headers, document = _read_header(path)
        facts = _facts(document, schema)
        check_headers(headers, schema.expected(facts), schema.sizes(facts))
        ((name, (dtype, shape)),) = headers.items()
        length = int(np.prod(shape)) * np.dtype(dtype).itemsize
        with path.open("rb") as file:
            start = 8 + int.from_bytes(file.read(8), "little")
        if path.stat().st_size != start + length:
            raise Mismatch("it is truncated, or longer than its header says")
        array: NDArray[Any] = np.memmap(path, dtype, mode="r", offset=start, shape=shape)
        _check_digests(document, headers, {name: array})
    except Mismatch as error:
        raise FileFormatError(f"{path} is not a usable file of kind {schema.kind!r}: {error}") from error
    return array, facts, document["sha256"]


def _read_header(path: Path) -> tuple[dict[str, Header], dict[str, Any]]:
    """Read the types and shapes of the arrays in a file, and the document that describes them."""
    with path.open("rb") as file:
        size = int.from_bytes(file.read(8), "little")
        if size > min(_HEADER_BYTES, path.stat().st_size):
            raise Mismatch("its header is longer than the file, or corrupt: is it a safetensors file?")
        text = file.read(size)
    try:
        header = parse_json(text.decode())
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
    for name, entry in header.items():
        Text(500).check(name, "the name of an array")
        _ENTRY.check(entry, f"the header of {name[:80]}")
    Text(_HEADER_BYTES).check(about[_KEY], "its metadata")
    document = parse_json(about[_KEY])
    _DOCUMENT.check(document, "its metadata")
    return {name: (_TYPES[entry["dtype"]], tuple(entry["shape"])) for name, entry in header.items()}, document


def _facts(document: dict[str, Any], schema: Schema) -> dict[str, Any]:
    if document["format"] != FORMAT:
        advice = (
            "It was written by dsal 0.1. Make it again with this version: dsal learn for a model, dsal extract for "
            "features, dsal pretrain for weights"
            if document["format"] == _FIRST
            else "Upgrade dsal"
        )
        raise Mismatch(f"it has format version {document['format']}; this version of dsal reads {FORMAT}. {advice}")
    facts: dict[str, Any] = parse_json(document["meta"])
    if not isinstance(facts, dict) or schema.kind not in (None, facts.get("kind")):
        kind = facts.get("kind", "file without a kind") if isinstance(facts, dict) else facts
        raise Mismatch(f"it holds a {str(kind)[:80]!r}, not a {schema.kind!r}")
    schema.facts.check({name: value for name, value in facts.items() if name != "kind"}, "its metadata")
    return facts


def _check_digests(document: dict[str, Any], names: Iterable[str], arrays: Mapping[str, NDArray[Any]]) -> None:
    """Raise :class:`Mismatch` if the document or one of these arrays is not what was written."""
    digests = document.get("arrays", {})
    valid = (
        digests.keys() == set(names)
        and _joint_digest(digests, document["meta"]) == document["sha256"]
        and all(_digest(name, array) == digests[name] for name, array in arrays.items())
    )
    if not valid:
        raise Mismatch("it was changed after it was written: its SHA-256 does not match")


def _joint_digest(digests: Mapping[str, str], text: str) -> str:
    """Return the SHA-256 of the metadata and the digests of all arrays."""
    return hashlib.sha256(json.dumps([text, sorted(digests.items())]).encode()).hexdigest()


def _digest(name: str, array: NDArray[Any]) -> str:
    """Return the SHA-256 of an array's name, type, shape and bytes."""
    digest = hashlib.sha256(f"\0{name}\0{array.dtype.str}\0{array.shape}\0".encode())
    digest.update(array.reshape(-1).view(np.uint8).data)
    return digest.hexdigest()


def _as_array(value: NDArray[Any] | Tensor) -> NDArray[Any]:
    array = value if isinstance(value, np.ndarray) else value.detach().cpu().numpy()
    return np.ascontiguousarray(array).reshape(array.shape)  # ascontiguousarray alone would turn () into (1,)


def flat(parts: Mapping[str, Mapping[str, NDArray[Any]]]) -> dict[str, NDArray[Any]]:
    """Return the arrays of all parts, each named ``part.name``."""
    return {f"{part}.{name}": array for part, arrays in parts.items() for name, array in arrays.items()}


def parted(arrays: Mapping[str, NDArray[Any]]) -> dict[str, dict[str, NDArray[Any]]]:
    """Return the parts that :func:`flat` joined."""
    parts: dict[str, dict[str, NDArray[Any]]] = {}
    for name, array in arrays.items():
        part, _, rest = name.partition(".")
        parts.setdefault(part, {})[rest] = array
    return parts
