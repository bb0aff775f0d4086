"""Read and check user input: rows, all before any are learned, their labels, and scikit-learn's ``random_state``.

A model has one kind of label; columns are numbered in the order in which labels arrive.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from numbers import Integral
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.utils import assert_all_finite, check_random_state, column_or_1d
from sklearn.utils.validation import validate_data

from dsal.analytic.rows import Block, PhaseRows, RowSample, regrouped, to_block
from dsal.base.arrays import as_array
from dsal.errors import InputError

_SLICE = 8192  # rows of an array checked together
_KINDS = {"b": "bool", "i": "int", "u": "int", "f": "float", "U": "str", "S": "bytes", "O": "object"}
_LEAST, _MOST = -(2**63), 2**63 - 1
_TYPES = {"bool": np.bool_, "int": np.int64, "float": np.float64}


class RowBatch(NamedTuple):
    """Checked rows: finite, with labels of one kind and positive weights."""

    x: NDArray[Any]  # (n x d_in) float32 or float64
    y: NDArray[Any]  # (n,)
    weight: NDArray[np.float64]  # (n,)


@dataclass(frozen=True)
class RowBatches:
    """The rows of a phase.

    Attributes:
        read: yields them in batches of any size; with arrays, of the given size.
        may_change: whether a second read might yield other rows: true for an iterable, false for arrays.
    """

    read: Callable[[int], Iterator[RowBatch]]
    may_change: bool


def check_features(estimator: Any, X: Any, *, reset: bool = False) -> NDArray[Any]:
    """Return an array or tensor of features as a finite NumPy array (n x d_in), float32 or float64."""
    try:
        x: NDArray[Any] = validate_data(estimator, as_array(X, "X"), reset=reset, dtype=[np.float64, np.float32])
    except (ValueError, OverflowError) as error:
        raise InputError(f"X: {error}" if isinstance(error, OverflowError) else str(error)) from error
    return x


def read_rows(estimator: Any, X: Any, y: Any, sample_weight: Any, *, reset: bool) -> RowBatches:
    """Return the rows of a phase: arrays ``X, y``, or an iterable ``X`` of batches ``(x, y)`` or ``(x, y, weight)``."""
    if isinstance(X, Iterator):
        raise InputError(
            "a phase is read more than once, and an iterator can be read only once: pass a list of batches, "
            "a DataLoader, or any object that can be iterated again"
        )
    if y is None and isinstance(X, Iterable) and not hasattr(X, "shape"):
        if sample_weight is not None:
            raise InputError("with an iterable of batches, pass the weights as the third part of each batch")
        return RowBatches(lambda _: _batches(X), may_change=True)
    if y is None:
        raise InputError(
            f"{type(estimator).__name__} requires y to be passed, but the target y is None; "
            "only an iterable of batches includes its labels"
        )
    rows = _batch(check_features(estimator, X, reset=reset), y, sample_weight)

    def read(size: int) -> Iterator[RowBatch]:
        return (RowBatch(*(part[i : i + size] for part in rows)) for i in range(0, len(rows.x), size))

    return RowBatches(read, may_change=False)


@dataclass(frozen=True, eq=False)
class Survey:
    """Summary of a phase before it is learned, with a way to read it again.

    Attributes:
        rows: number of rows, not counting those of weight zero.
        features: their width d_in.
        labels: the labels present, sorted.
        weights: the summed weight of the rows of each label.
        sample: some rows, picked by their content.
    """

    rows: int
    features: int
    labels: NDArray[Any]
    weights: NDArray[np.float64]
    sample: RowSample
    _batches: RowBatches
    _checksum: int

    @classmethod
    def of(cls, batches: RowBatches, *, features: int | None, kind: str | None, sample_size: int, seed: int) -> Survey:
        """Read a phase from end to end and check every row.

        Args:
            batches: the rows.
            features: the width they must have; None: that of the first batch.
            kind: the kind of label they must have; None: that of the first batch.
            sample_size: how many different rows to pick.
            seed: decides which rows are picked.
        """
        rows, checksum, weights = 0, 0, dict[Any, float]()
        sample: RowSample | None = None
        for x, y, weight in batches.read(_SLICE):
            features, kind = features or x.shape[1], kind or kind_of(y)
            if x.shape[1] != features:
                raise InputError(f"X has {x.shape[1]} features, but the model is expecting {features} features")
            if kind_of(y) != kind:
                raise InputError(f"labels mix types ({kind}, {kind_of(y)}): use one type of label")
            sample = sample or RowSample(sample_size, features, seed)
            rows, checksum = rows + len(x), _added(checksum, sample.add(x, y, weight), weight)
            labels, inverse = np.unique(y, return_inverse=True)
            for label, total in zip(labels.tolist(), np.bincount(inverse, weight), strict=True):
                weights[label] = weights.get(label, 0.0) + total
        if features is None or sample is None:
            raise InputError("the phase is empty: it has no rows, or none with a weight above zero")
        ordered = sorted(weights)
        totals = np.array([weights[label] for label in ordered])
        return cls(rows, features, label_array(ordered), totals, sample, batches, checksum)

    def phase(self, classes: NDArray[Any], device: torch.device) -> PhaseRows:
        """Return the phase for the learner, with ``classes`` as the labels of all columns.

        Reading it raises :class:`InputError` if the rows are not those of the survey, apart from their order.
        """

        def read(size: int) -> Iterator[Block]:
            blocks = (to_block(x, columns_of(y, classes), weight, device) for x, y, weight in self._again(size))
            return regrouped(blocks, size)

        present = torch.from_numpy(np.sort(columns_of(self.labels, classes))).to(device)
        return PhaseRows(read, self.rows, present, len(classes), self.rows_for(classes, len(self.sample.keys), device))

    def rows_for(self, classes: NDArray[Any], rows: int, device: torch.device) -> Block:
        """Return the first ``rows`` rows of the sample."""
        some = slice(rows)
        x, y, weight = self.sample.x[some], self.sample.y[some], self.sample.weight[some]
        return to_block(x, columns_of(y, classes), weight, device)

    def _again(self, size: int) -> Iterator[RowBatch]:
        if not self._batches.may_change:
            yield from self._batches.read(size)
            return
        checksum = 0
        for batch in self._batches.read(size):
            if batch.x.shape[1] != self.features:
                raise InputError(_CHANGED)
            checksum = _added(checksum, self.sample.keys_of(batch.x, batch.y), batch.weight)
            yield batch
        if checksum != self._checksum:
            raise InputError(_CHANGED)


def label_array(y: Any) -> NDArray[Any]:
    """Return labels as a one-dimensional array of one kind: bool, int64, float64, str, bytes, or objects of one type.

    >>> label_array(["cat", 1])
    Traceback (most recent call last):
        ...
    dsal.errors.InputError: labels mix types (int, str): use one type of label
    """
    y = as_array(y, "y")
    if isinstance(y, (list, tuple)):
        y = _of_one_type(list(y))
    try:
        array: NDArray[Any] = column_or_1d(y, warn=True)
        if array.dtype == np.object_:
            array = _of_one_type(array.tolist())
        kind = kind_of(array)
        if kind == "float":
            assert_all_finite(array, input_name="y")
    except ValueError as error:
        raise InputError(str(error)) from error
    if kind == "float" and not (array == np.floor(array)).all():
        raise InputError("Unknown label type: continuous. Labels must be integers or strings")
    if len(array) and (kind == "int" or type(array[0]) is int) and not _LEAST <= array.min() <= array.max() <= _MOST:
        raise InputError(f"integer labels must lie between {_LEAST} and {_MOST}: use strings for larger ones")
    return array.astype(_TYPES[kind], copy=False) if kind in _TYPES else array


def kind_of(labels: NDArray[Any]) -> str:
    """Return the kind of label in an array: two arrays of labels are compatible if their kinds are equal."""
    kind = _KINDS.get(labels.dtype.kind)
    if kind is None:
        raise InputError(f"labels of type {labels.dtype} are not supported: use numbers or strings")
    return kind


def columns_of(labels: NDArray[Any], classes: NDArray[Any]) -> NDArray[np.int64]:
    """Return the column of every label (n,) in ``classes``; -1 for labels that are not there."""
    table = {label: column for column, label in enumerate(classes.tolist())}
    unique, inverse = np.unique(labels, return_inverse=True)
    return np.array([table.get(label, -1) for label in unique.tolist()], dtype=np.int64)[inverse]


def seed_from(random_state: Any) -> int:
    """Return one integer for an integer, None, NumPy ``RandomState`` or ``Generator``, or ``torch.Generator``."""
    if isinstance(random_state, torch.Generator):
        return int(torch.randint(2**31, (), generator=random_state, device=random_state.device))
    if isinstance(random_state, np.random.Generator):
        return int(random_state.integers(2**31))
    if isinstance(random_state, Integral) and not isinstance(random_state, bool):
        seed = int(random_state)
        if not 0 <= seed < 2**32:
            raise InputError(f"random_state must be from 0 to 2**32 - 1, not {seed}")
        return seed
    try:
        return int(check_random_state(random_state).randint(2**31))
    except ValueError as error:
        raise InputError(f"random_state: {error}") from error


_CHANGED = (
    "the batches changed between two reads of the phase: it is read more than once and must yield the same rows "
    "each time, in any order. Apply random augmentation before computing features"
)


def _batches(iterable: Iterable[Any]) -> Iterator[RowBatch]:
    """Yield the batches of an iterable, checking each."""
    for item in iterable:
        if not isinstance(item, (tuple, list)) or len(item) not in (2, 3):
            raise InputError(f"a batch must be (x, y) or (x, y, weight), not {type(item).__name__}")
        x = np.asarray(as_array(item[0], "X"))
        if x.ndim != 2 or x.dtype.kind not in "fiub":
            raise InputError(f"the features of a batch must be a numeric matrix, not {x.dtype} of shape {x.shape}")
        if x.dtype not in (np.float32, np.float64):
            x = x.astype(np.float64)
        if not np.isfinite(x).all():
            raise InputError("Input X contains NaN or infinity.")
        batch = _batch(x, item[1], item[2] if len(item) == 3 else None)
        if len(batch.x):
            yield batch


def _batch(x: NDArray[Any], y: Any, weight: Any) -> RowBatch:
    """Return rows with checked labels and weights, without rows of weight zero."""
    labels = label_array(y)
    if len(labels) != len(x):
        raise InputError(f"Found input variables with inconsistent numbers of samples: {[len(x), len(labels)]}")
    if weight is None:
        return RowBatch(x, labels, np.ones(len(x)))
    weight = as_array(weight, "sample_weight")
    try:
        weights = np.asarray(weight, dtype=np.float64)
    except (ValueError, TypeError, OverflowError) as error:
        raise InputError(f"sample_weight: {error}") from error
    if weights.shape not in ((), x.shape[:1]):
        raise InputError(f"sample_weight must have shape {x.shape[:1]}, not {weights.shape}")
    if not np.isfinite(weights).all() or (weights < 0).any():
        raise InputError("sample_weight must be finite and not negative")
    weights = np.broadcast_to(weights, len(x))
    used = weights > 0
    return RowBatch(x, labels, weights) if used.all() else RowBatch(x[used], labels[used], weights[used])


def _added(checksum: int, keys: NDArray[np.uint64], weight: NDArray[np.float64]) -> int:
    """Add rows and their weights to a checksum that depends neither on their order nor on how they are batched."""
    bits = np.ascontiguousarray(weight).view(np.uint64)
    return (checksum + int((keys * (bits + np.uint64(1))).sum(dtype=np.uint64))) % 2**64


def _of_one_type(labels: list[Any]) -> NDArray[Any]:
    types = {type(label.item() if isinstance(label, np.generic) else label) for label in labels}
    if len(types) > 1:
        raise InputError(f"labels mix types ({', '.join(sorted(t.__name__ for t in types))}): use one type of label")
    if types & {bool, int, float, str, bytes, list}:
        return np.asarray(labels)
    array = np.empty(len(labels), dtype=object)
    array[:] = labels
    return array
