"""Data sets of features: what a frozen backbone made of every image, with the card of that backbone.

On disk features are float16 or, smaller still, coded (``dsal.data.coding``); in memory float32. Each kind of features
is the tail of the next wider one (``dsal.backbones.pooling``), so a narrower kind is a slice of the columns.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dsal.data.coding import decode, encode
from dsal.data.dataset import EMBEDDED
from dsal.data.samples import FeatureRows
from dsal.errors import FileFormatError, InputError, UnknownNameError
from dsal.schema import Anything, Array, Each, Maybe, Number, Record, Ruled, Schema, Text
from dsal.store import load_tensors, save_tensors

_KIND = "features"
_WIDTH = Number(1, 2**31, whole=True)


def _disagreement(facts: dict[str, Any]) -> str | None:
    if "widths" not in facts and "stage_widths" not in facts:
        return "it does not say how wide the features are"
    pairs = facts.get("widths", [])
    sane = all(len(p) == 2 and isinstance(p[0], str) and isinstance(p[1], int) and p[1] > 0 for p in pairs)
    if not sane or [width for _, width in pairs] != sorted(width for _, width in pairs):
        return "widths must be pairs of a kind and a number, narrowest first"
    return None


SCHEMA = Schema(
    _KIND,
    Ruled(
        Record(
            {
                "name": Text(200),
                "class_names": Each(Text(500), 1, 100_000),
                "backbone": Record(
                    {},
                    optional={
                        "architecture": Text(200),
                        "class_order": Text(200),
                        "seen_classes": Maybe(Each(Number(0, 2**31, whole=True))),
                        "weights_sha256": Maybe(Text(64)),
                    },
                    rest=Anything(),
                ),
                "dataset": Maybe(Text(200)),
            },
            optional={
                "widths": Each(Each(Anything(), 2, 2), 1, 20),
                "stage_widths": Each(_WIDTH, 1, 20),
            },
        ),
        _disagreement,
    ),
    {
        "train_y": Array("int32", ("training samples",), low=0),
        "test_y": Array("int32", ("test samples",), low=0),
        "train_x": Array("float16", ("training samples", "width"), optional=True),
        "test_x": Array("float16", ("test samples", "width"), optional=True),
        "columns": Array("int32", ("_columns", 5), optional=True),  # of coded features, see dsal.data.coding
        "codes": Array("uint8", ("_bytes",), optional=True),
        "unit": Array("float32", (1,), optional=True),
    },
)


@dataclass(frozen=True, eq=False)
class FeatureSet:
    """Features of a data set in its two parts.

    Attributes:
        name: what to call it.
        train_x: float32, (N, d); may be memory-mapped and read-only.
        train_y: int64, (N,), data-set labels.
        test_x: float32, (M, d).
        test_y: int64, (M,).
        class_names: by data-set label.
        fingerprint: sha256 of the content (:func:`features_fingerprint`).
        widths: number of columns of each kind of features, narrowest first; the last of them is d.
        backbone: card of the backbone, as JSON holds it.
        dataset: the image data set these are features of, where known.
    """

    name: str
    train_x: NDArray[np.float32]
    train_y: NDArray[np.int64]
    test_x: NDArray[np.float32]
    test_y: NDArray[np.int64]
    class_names: tuple[str, ...]
    fingerprint: str
    widths: Mapping[str, int]
    backbone: dict[str, Any]
    dataset: str | None = None

    def __post_init__(self) -> None:
        sizes = list(self.widths.values())
        if not sizes or sizes != sorted(sizes) or sizes[0] < 1:
            raise InputError(f"widths must be those of one or more kinds of features, narrowest first: {self.widths}")
        for x, y in ((self.train_x, self.train_y), (self.test_x, self.test_y)):
            if x.dtype != np.float32 or x.ndim != 2 or x.shape[1] != self.widths[self.kind]:
                raise InputError(
                    f"{self.kind!r} features must be float32 of shape (N, {self.widths[self.kind]}), "
                    f"got {x.dtype} of shape {x.shape}"
                )
            if y.dtype != np.int64 or y.shape != x.shape[:1]:
                raise InputError(f"labels must be int64 of shape ({len(x)},), got {y.dtype} of shape {y.shape}")
            if y.size and not 0 <= y.min() <= y.max() < len(self.class_names):
                raise InputError(f"labels must be from 0 to {len(self.class_names) - 1}, one for each class name")

    @property
    def train(self) -> FeatureRows:
        """The training samples."""
        return FeatureRows(self.train_x, torch.from_numpy(self.train_y))

    @property
    def test(self) -> FeatureRows:
        """The test samples."""
        return FeatureRows(self.test_x, torch.from_numpy(self.test_y))

    def keep(self, rows: Tensor) -> FeatureSet:
        """Return the same set with some of the training samples alone."""
        return replace(self, train_x=self.train_x[rows.numpy()], train_y=self.train_y[rows.numpy()])

    @property
    def kind(self) -> str:
        """The kind of features this is a set of: the widest it holds."""
        return list(self.widths)[-1]

    def select(self, features: str | None) -> FeatureSet:
        """The columns of a kind of features (views, not copies); the set itself for None and for its own kind.

        Raises:
            UnknownNameError: the set holds no such kind.
        """
        kinds = tuple(self.widths)
        if features is not None and features not in kinds:
            raise UnknownNameError(f"kind of features in the set {self.name!r}", features, kinds)
        if features in (None, self.kind):
            return self
        held = {kind: self.widths[kind] for kind in kinds[: kinds.index(features) + 1]}
        start = self.train_x.shape[1] - held[features]
        if start == 0:
            return replace(self, widths=held)
        return replace(
            self,
            train_x=self.train_x[:, start:],
            test_x=self.test_x[:, start:],
            widths=held,
            fingerprint=hashlib.sha256(f"{self.fingerprint} from column {start}".encode()).hexdigest(),
        )


def features_fingerprint(*arrays: NDArray[Any]) -> str:
    """sha256 over types, shapes and content of ``arrays``, in their order of rows."""
    digest = hashlib.sha256()
    for array in arrays:
        digest.update(f"{array.dtype.str} {array.shape}".encode())
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()


def load_features(name: str, features: str | None = None) -> FeatureSet:
    """Load a set of features that ships in the package.

    Args:
        name: one of :func:`feature_set_names`.
        features: kind of features; the widest there is by default.

    Raises:
        UnknownNameError: no set of that name ships with this version.
    """
    if name not in feature_set_names():
        raise UnknownNameError("embedded set of features", name, feature_set_names())
    return read_features(EMBEDDED / f"{name}.safetensors", features)


def feature_set_names() -> tuple[str, ...]:
    """Names of the sets of features that ship in the package."""
    return tuple(sorted(path.stem for path in EMBEDDED.glob("*.safetensors")))


def save_features(path: str | os.PathLike[str], features: FeatureSet, *, step: float | None = None) -> None:
    """Write a set of features to one file, float16 or coded.

    Args:
        path: file to write.
        features: what to write.
        step: code the features (``dsal.data.coding``) with this quantisation step, on the principal axes of the
            training rows of the classes that the backbone has seen; None for float16.

    Raises:
        InputError: a value is not finite, or larger than float16 holds (65504); the step is too small.
    """
    limit = float(np.finfo(np.float16).max)
    for part in (features.train_x, features.test_x):
        if not np.all(np.abs(part) <= limit):
            raise InputError(f"features must be finite and at most {limit} in size to be stored as float16")
    if step is None:
        arrays = {"train_x": features.train_x.astype(np.float16), "test_x": features.test_x.astype(np.float16)}
    else:
        seen = features.backbone.get("seen_classes")
        base = slice(None) if seen is None else np.isin(features.train_y, seen)
        arrays = encode(np.concatenate([features.train_x, features.test_x]), features.train_x[base], step)
    save_tensors(
        path,
        {**arrays, "train_y": features.train_y.astype(np.int32), "test_y": features.test_y.astype(np.int32)},
        {
            "kind": _KIND,
            "name": features.name,
            "class_names": list(features.class_names),
            "widths": list(features.widths.items()),
            "backbone": features.backbone,
            "dataset": features.dataset,
        },
    )


def read_features(path: str | os.PathLike[str], features: str | None = None) -> FeatureSet:
    """Read what :func:`save_features` wrote; the fingerprint is that of the content as read.

    Args:
        path: file of features.
        features: kind of features; the widest there is by default.

    Raises:
        FileNotFoundError: there is no such file.
        FileFormatError: the file is truncated or corrupt, changed, or holds something else.
    """
    arrays, meta = load_tensors(path, SCHEMA)
    try:
        train_y, test_y = (arrays[name].astype(np.int64) for name in ("train_y", "test_y"))
        if "codes" in arrays:
            rows = decode(arrays, train_y.size + test_y.size)
            train_x, test_x = rows[: train_y.size], rows[train_y.size :]
        else:
            train_x, test_x = (arrays[name].astype(np.float32) for name in ("train_x", "test_x"))
        whole = FeatureSet(
            name=meta["name"],
            train_x=train_x,
            train_y=train_y,
            test_x=test_x,
            test_y=test_y,
            class_names=tuple(meta["class_names"]),
            fingerprint=features_fingerprint(train_x, train_y, test_x, test_y),
            widths=_widths(meta),
            backbone=meta["backbone"],
            dataset=meta["dataset"],
        )
    except (LookupError, TypeError, ValueError, OverflowError) as error:
        raise FileFormatError(f"{Path(path)} is not a whole set of features: {error}") from error
    return whole.select(features)


def _widths(meta: dict[str, Any]) -> dict[str, int]:
    """Number of columns by kind of features, narrowest first."""
    if "widths" in meta:
        return {str(kind): int(width) for kind, width in meta["widths"]}
    stages = meta["stage_widths"]  # a file of before the kinds had names: all stages side by side
    return {"last": int(stages[-1]), "stages": int(sum(stages))}
