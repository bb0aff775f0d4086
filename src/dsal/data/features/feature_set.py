"""Data sets of features: the output of a frozen backbone for every image, and the card of that backbone.

On disk features are float16 or, smaller still, coded (``coding.py``); in memory float32. Each kind of
features is the tail of the next wider one (``dsal.backbones.pooling``), so a narrower kind is a slice of the columns.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dsal.base.registry import check_name
from dsal.data.dataset import EMBEDDED
from dsal.data.features.coding import decode, encode
from dsal.data.samples import FeatureArray, FeatureRows, MappedRows
from dsal.errors import FileFormatError, InputError
from dsal.files.schema import Anything, Array, Each, Maybe, Number, Record, Ruled, Schema, Text
from dsal.files.tensors import load_tensors, save_tensors

_KIND = "features"


def widths_disagree(facts: dict[str, Any]) -> str | None:
    """Return what is wrong with the widths of a set of features, or None."""
    pairs = facts["widths"]
    sane = all(len(p) == 2 and isinstance(p[0], str) and isinstance(p[1], int) and p[1] > 0 for p in pairs)
    if not sane or [width for _, width in pairs] != sorted(width for _, width in pairs):
        return "widths must be pairs of a kind and a number, narrowest first"
    return None


RECORD = Record(
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
        "widths": Each(Each(Anything(), 2, 2), 1, 20),
    }
)
"""Metadata of a set of features, in a file or a folder of shards; :func:`widths_disagree` checks the widths."""
SCHEMA = Schema(
    _KIND,
    Ruled(RECORD, widths_disagree),
    {
        "train_y": Array("int32", ("training samples",), low=0),
        "test_y": Array("int32", ("test samples",), low=0),
        "train_x": Array("float16", ("training samples", "width"), optional=True),
        "test_x": Array("float16", ("test samples", "width"), optional=True),
        "columns": Array("int32", ("_columns", 5), optional=True),  # of coded features, see dsal.data.features.coding
        "codes": Array("uint8", ("_bytes",), optional=True),
        "unit": Array("float32", (1,), optional=True),
    },
)


@dataclass(frozen=True, eq=False)
class FeatureSet:
    """Training and test features of a data set.

    Attributes:
        name: the name shown in results and reports.
        train_x: float32, (N, d); may be memory-mapped and read-only, or rows of many files.
        train_y: int64, (N,), data-set labels.
        test_x: float32, (M, d).
        test_y: int64, (M,).
        class_names: by data-set label.
        fingerprint: sha256 of the content (:func:`features_fingerprint`).
        widths: number of columns of each kind of features, narrowest first; the last of them is d.
        backbone: card of the backbone, as JSON values.
        dataset: the image data set that the features belong to, if known.
    """

    name: str
    train_x: FeatureArray
    train_y: NDArray[np.int64]
    test_x: FeatureArray
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

    @classmethod
    def from_arrays(cls, train_x: Any, train_y: Any, test_x: Any, test_y: Any, *, name: str = "features") -> FeatureSet:
        """Make a set of features from arrays; classes arrive in the sorted order of their labels.

        Args:
            train_x: features (N, d).
            train_y: labels (N,): numbers or text.
            test_x: features (M, d).
            test_y: labels (M,), of classes in ``train_y``.
            name: the name shown in results and reports.

        Raises:
            InputError: shapes disagree, or a test label is not among the training labels.
        """
        classes, numbers = np.unique(np.asarray(train_y), return_inverse=True)
        test_labels = np.asarray(test_y)
        unknown = sorted(set(test_labels.tolist()) - set(classes.tolist()))
        if unknown:
            raise InputError(f"test labels must be among the training labels; {unknown[0]!r} is not")
        x, test = (np.ascontiguousarray(part, dtype=np.float32) for part in (train_x, test_x))
        y, expected = numbers.astype(np.int64), np.searchsorted(classes, test_labels).astype(np.int64)
        return cls(
            name=name,
            train_x=x,
            train_y=y,
            test_x=test,
            test_y=expected,
            class_names=tuple(map(str, classes.tolist())),
            fingerprint=features_fingerprint(x, y, test, expected),
            widths={"last": x.shape[-1]},
            backbone={},
        )

    @property
    def train(self) -> FeatureRows:
        """The training samples."""
        return FeatureRows(self.train_x, torch.from_numpy(self.train_y))

    @property
    def test(self) -> FeatureRows:
        """The test samples."""
        return FeatureRows(self.test_x, torch.from_numpy(self.test_y))

    def keep(self, rows: Tensor) -> FeatureSet:
        """Return the same set with only some of the training samples."""
        kept = self.train.take(rows)
        return replace(self, train_x=kept.x, train_y=self.train_y[rows.numpy()])

    @property
    def kind(self) -> str:
        """The kind of features in this set: the widest it holds."""
        return list(self.widths)[-1]

    def select(self, features: str | None) -> FeatureSet:
        """Return the columns of a kind of features (views, not copies); the set itself for None and its own kind.

        Raises:
            UnknownNameError: the set holds no such kind.
        """
        kinds = tuple(self.widths)
        if features in (None, self.kind):
            return self
        check_name(f"kind of features in the set {self.name!r}", features, kinds)
        held = {kind: self.widths[kind] for kind in kinds[: kinds.index(features) + 1]}
        start = self.train_x.shape[1] - held[features]
        if start == 0:
            return replace(self, widths=held)
        return replace(
            self,
            train_x=_columns(self.train_x, start),
            test_x=_columns(self.test_x, start),
            widths=held,
            fingerprint=hashlib.sha256(f"{self.fingerprint} from column {start}".encode()).hexdigest(),
        )


def _columns(x: FeatureArray, start: int) -> FeatureArray:
    return x.from_column(start) if isinstance(x, MappedRows) else x[:, start:]


def features_fingerprint(*arrays: NDArray[Any]) -> str:
    """Return the sha256 of types, shapes and content of ``arrays``, in row order."""
    digest = hashlib.sha256()
    for array in arrays:
        digest.update(f"{array.dtype.str} {array.shape}".encode())
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()


def feature_set_names() -> tuple[str, ...]:
    """Return the names of the sets of features that ship with the package."""
    return tuple(sorted(path.stem for path in EMBEDDED.glob("*.safetensors")))


def stored_rows(x: NDArray[np.float32], *, exact: bool = False) -> NDArray[Any]:
    """Return features as they are stored: float16, or unchanged if ``exact``.

    Raises:
        InputError: a value is not finite, or larger than the type holds.
    """
    dtype = np.float32 if exact else np.float16
    limit = float(np.finfo(dtype).max)
    if not np.all(np.abs(x) <= limit):
        raise InputError(f"features must be finite and at most {limit:g} in magnitude to be stored as {dtype.__name__}")
    return x.astype(dtype, copy=False)


def save_features(path: str | os.PathLike[str], features: FeatureSet, *, step: float | None = None) -> None:
    """Write a set of features to one file, float16 or coded.

    Args:
        path: file to write.
        features: what to write.
        step: code the features (``coding.py``) with this quantisation step, on the principal axes of the
            training rows of the classes that the backbone has seen; None for float16.

    Raises:
        InputError: a value is not finite, or larger than float16 holds (65504); the step is too small.
    """
    train_x, test_x = np.asarray(features.train_x), np.asarray(features.test_x)
    arrays = {"train_x": stored_rows(train_x), "test_x": stored_rows(test_x)}
    if step is not None:
        seen = features.backbone.get("seen_classes")
        base = slice(None) if seen is None else np.isin(features.train_y, seen)
        arrays = encode(np.concatenate([train_x, test_x]), train_x[base], step)
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


Rows: TypeAlias = tuple[FeatureArray, NDArray[np.int64], FeatureArray, NDArray[np.int64]]
"""Training and test features, each followed by its labels."""


def described_set(facts: Mapping[str, Any], rows: Rows, fingerprint: str) -> FeatureSet:
    """Return a set of features with the facts of :data:`RECORD`."""
    names, widths = tuple(facts["class_names"]), dict(facts["widths"])
    return FeatureSet(facts["name"], *rows, names, fingerprint, widths, facts["backbone"], facts["dataset"])


def read_features(path: str | os.PathLike[str], features: str | None = None) -> FeatureSet:
    """Read what :func:`save_features` wrote; the fingerprint is that of the content as read.

    Args:
        path: file of features.
        features: kind of features; the widest by default.

    Raises:
        FileNotFoundError: there is no such file.
        FileFormatError: the file is truncated or corrupt, changed, or holds something else.
    """
    arrays, facts = load_tensors(path, SCHEMA)
    try:
        train_y, test_y = (arrays[name].astype(np.int64) for name in ("train_y", "test_y"))
        if "codes" in arrays:
            train_x, test_x = np.split(decode(arrays, train_y.size + test_y.size), [train_y.size])
        else:
            train_x, test_x = (arrays[name].astype(np.float32) for name in ("train_x", "test_x"))
        rows = train_x, train_y, test_x, test_y
        whole = described_set(facts, rows, features_fingerprint(*rows))
    except (LookupError, TypeError, ValueError, OverflowError) as error:
        raise FileFormatError(f"{Path(path)} is not a complete set of features: {error}") from error
    return whole.select(features)
