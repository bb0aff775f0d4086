"""Features in a folder of shards, for sets larger than memory: written piece by piece and read memory-mapped.

``train-00000.safetensors``, ``train-00001.safetensors`` ... and ``test-00000.safetensors`` ... hold the rows, the same
number in each but the last. ``index.safetensors``, written last, holds labels, class names, the card of the backbone
and the SHA-256 of every shard. A folder without it is an unfinished extraction.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dsal.data.features.feature_set import RECORD, FeatureSet, described_set, stored_rows, widths_disagree
from dsal.data.samples import MappedRows
from dsal.errors import FileFormatError, InputError
from dsal.files.schema import Array, Choice, Each, Number, Record, Ruled, Schema, Text
from dsal.files.tensors import load_tensors, map_tensor, save_tensors

INDEX = "index.safetensors"
PARTS = ("train", "test")
_KIND, _SHARD = "sharded features", "shard of features"
_DIGESTS = Each(Text(64), 0, 10**6)
_SHARD_SCHEMA = Schema(
    _SHARD,
    Record({"made": Text(64), "part": Choice(PARTS), "start": Number(0, 2**50, whole=True)}),
    {"x": Array(("float16", "float32"), ("rows", "width"))},
)
_SCHEMA = Schema(
    _KIND,
    Ruled(
        Record(
            {
                **RECORD.keys,
                "made": Text(64),
                "shard_rows": Number(1, 2**40, whole=True),
                **dict.fromkeys(PARTS, _DIGESTS),
            }
        ),
        widths_disagree,
    ),
    {f"{part}_y": Array("int32", (f"{part} samples",), low=0) for part in PARTS},
)


def shard_path(folder: Path, part: str, number: int) -> Path:
    """Return the file of a shard."""
    return folder / f"{part}-{number:05d}.safetensors"


def write_shard(
    folder: Path, part: str, number: int, x: NDArray[np.float32], *, made: str, start: int, exact: bool = False
) -> None:
    """Write the rows x (n, d) of a shard, completely or not at all.

    Args:
        folder: of the shards.
        part: ``"train"`` or ``"test"``.
        number: of the shard in its part.
        x: its rows.
        made: digest of everything that the features depend on; shards of one folder share it.
        start: number of its first row in its part.
        exact: keep float32; else float16.

    Raises:
        InputError: a value is not finite, or larger than float16 holds.
    """
    facts = {"kind": _SHARD, "made": made, "part": part, "start": start}
    save_tensors(shard_path(folder, part, number), {"x": stored_rows(x, exact=exact)}, facts)


def shard_digest(folder: Path, part: str, number: int, *, made: str, start: int, rows: int, width: int) -> str | None:
    """Return the SHA-256 of a shard that exists and is intact; None if there is none.

    Raises:
        InputError: the shard was made from other images, weights or options.
    """
    path = shard_path(folder, part, number)
    if not path.exists():
        return None
    x, facts, digest = map_tensor(path, _SHARD_SCHEMA)
    if (facts["made"], facts["part"], facts["start"]) != (made, part, start) or x.shape != (rows, width):
        raise InputError(
            f"{path} holds features of other images, other weights or another kind: "
            "use another folder, or delete this one to start again"
        )
    return digest


def write_index(
    folder: Path,
    labels: Mapping[str, NDArray[np.int64]],
    digests: Mapping[str, Sequence[str]],
    facts: Mapping[str, Any],
    *,
    made: str,
    shard_rows: int,
) -> None:
    """Write the index that makes the folder a set of features; all shards must exist.

    Args:
        folder: of the shards.
        labels: of each part, (n,).
        digests: of the shards of each part.
        facts: name, class names, widths, card of the backbone, image data set: as in a file of features.
        made: see :func:`write_shard`.
        shard_rows: rows of each shard but the last of its part.
    """
    save_tensors(
        folder / INDEX,
        {f"{part}_y": labels[part].astype(np.int32) for part in PARTS},
        {
            "kind": _KIND,
            **facts,
            "made": made,
            "shard_rows": shard_rows,
            **{part: list(digests[part]) for part in PARTS},
        },
    )


def is_sharded(path: Path) -> bool:
    """Return whether a path is a finished folder of shards."""
    return (path / INDEX).is_file()


def read_shards(folder: Path, features: str | None = None, *, made: str | None = None) -> FeatureSet:
    """Open a folder of shards: labels are read, rows stay on disk. Every shard is checked against its SHA-256.

    Args:
        folder: of the shards.
        features: kind of features; the widest by default.
        made: the digest that the shards must have; see :func:`write_shard`.

    Raises:
        FileNotFoundError: there is no index: no such folder, or an unfinished extraction.
        FileFormatError: a file is missing, truncated or corrupt, or belongs to another set.
        InputError: the features have another digest than ``made``.
    """
    if not is_sharded(folder):
        raise FileNotFoundError(
            f"{folder} holds no finished set of features: expected {INDEX}, which `dsal extract` writes at the end. "
            "Run it again to continue"
        )
    arrays, facts = load_tensors(folder / INDEX, _SCHEMA)
    if made not in (None, facts["made"]):
        raise InputError(f"{folder} holds features of other images, other weights or another kind")
    labels = {part: arrays[f"{part}_y"].astype(np.int64) for part in PARTS}
    try:
        width = max(width for _, width in facts["widths"])
        train, test = ((_mapped(folder, part, len(labels[part]), width, facts), labels[part]) for part in PARTS)
        whole = described_set(facts, (*train, *test), _fingerprint(labels, facts))
    except (LookupError, TypeError, ValueError, OverflowError) as error:
        raise FileFormatError(f"{folder} is not a complete set of features: {error}") from error
    return whole.select(features)


def _mapped(folder: Path, part: str, rows: int, width: int, facts: Mapping[str, Any]) -> MappedRows:
    shards, size = [], facts["shard_rows"]
    for number, digest in enumerate(facts[part]):
        path, start = shard_path(folder, part, number), number * size
        try:
            x, own, found = map_tensor(path, _SHARD_SCHEMA)
        except FileNotFoundError as error:
            raise FileFormatError(f"{path} is missing") from error
        if found != digest or own["start"] != start or x.shape != (min(size, rows - start), width):
            raise FileFormatError(f"{path} is not the shard listed in {folder / INDEX}")
        shards.append(x)
    return MappedRows(tuple(shards), size, rows, width)


def _fingerprint(labels: Mapping[str, NDArray[np.int64]], facts: Mapping[str, Any]) -> str:
    """Return the sha256 of the digests of all shards and the labels."""
    digest = hashlib.sha256(json.dumps([facts[part] for part in PARTS]).encode())
    for part in PARTS:
        digest.update(labels[part].data)
    return digest.hexdigest()
