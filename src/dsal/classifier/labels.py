"""Map labels to columns: one kind of label per model, with columns numbered in order of arrival."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import assert_all_finite, column_or_1d

from dsal.base.arrays import as_array
from dsal.errors import InputError

_KINDS = {"b": "bool", "i": "int", "u": "int", "f": "float", "U": "str", "S": "bytes", "O": "object"}
_LEAST, _MOST = -(2**63), 2**63 - 1
_TYPES = {"bool": np.bool_, "int": np.int64, "float": np.float64}


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


def _of_one_type(labels: list[Any]) -> NDArray[Any]:
    types = {type(label.item() if isinstance(label, np.generic) else label) for label in labels}
    if len(types) > 1:
        raise InputError(f"labels mix types ({', '.join(sorted(t.__name__ for t in types))}): use one type of label")
    if types & {bool, int, float, str, bytes, list}:
        return np.asarray(labels)
    array = np.empty(len(labels), dtype=object)
    array[:] = labels
    return array
