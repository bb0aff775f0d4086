"""Features computed elsewhere: an ``.npz`` file, a folder of ``.npy`` files, or a parquet file.

The layout (docs/reference/formats.md): in ``.npz`` and folders, four arrays: ``train_x`` and ``test_x``, numbers
(n, d), and ``train_y`` and ``test_y``, labels (n,), integers or text. In parquet, one row per sample: the columns
``label``, ``split`` ("train" or "test") and either ``features``, a list of numbers, or one column per feature:
all other columns, in their order.
"""

from __future__ import annotations

import zlib
from importlib import import_module
from pathlib import Path
from typing import Any, BinaryIO, TypeAlias
from zipfile import BadZipFile, ZipFile

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from dsal.data.features.feature_set import FeatureSet
from dsal.errors import FileFormatError, InputError
from dsal.files.atomic import check_readable

PARTS = ("train_x", "train_y", "test_x", "test_y")
SUFFIXES = (".npz", ".parquet")
Arrays: TypeAlias = "dict[str, NDArray[Any]]"


def is_table(path: Path) -> bool:
    """Return whether a path is for :func:`read_table`: by its suffix, or because it is a folder."""
    return path.suffix.lower() in SUFFIXES or path.is_dir()


def read_table(path: Path) -> FeatureSet:
    """Read features and labels in one of the layouts above; classes are the labels of the training part, sorted.

    Raises:
        FileNotFoundError: a file is missing.
        FileFormatError: a file is truncated or corrupt.
        InputError: the layout is wrong, numbers are not finite, or a class is only in the test part.
    """
    if path.is_dir():
        arrays = _read_folder(path)
    else:
        arrays = (_read_npz if path.suffix.lower() == ".npz" else _read_parquet)(check_readable(path))
    train_x, test_x = (_features(arrays[name], f"{name} of {path}") for name in ("train_x", "test_x"))
    train_y, test_y = (_labels(arrays[name], f"{name} of {path}") for name in ("train_y", "test_y"))
    for part, x, y in (("train", train_x, train_y), ("test", test_x, test_y)):
        if len(x) != len(y):
            raise InputError(
                f"{path} has {len(x)} rows of {part}_x and {len(y)} labels in {part}_y: expected one per row"
            )
    if train_x.shape[1] != test_x.shape[1]:
        raise InputError(f"{path} has {train_x.shape[1]} features in train_x and {test_x.shape[1]} in test_x")
    if train_y.dtype.kind != test_y.dtype.kind:
        raise InputError(f"{path}: the labels of one part are numbers, those of the other are text")
    unknown = sorted(set(test_y.tolist()) - set(train_y.tolist()))
    if unknown:
        raise InputError(f"{path} has classes that are only in the test part: {', '.join(map(str, unknown[:5]))}")
    return FeatureSet.from_arrays(train_x, train_y, test_x, test_y, name=path.stem)


def _features(x: NDArray[Any], name: str) -> NDArray[np.float32]:
    if x.dtype.kind not in "fiu" or x.ndim != 2 or not x.size:
        raise InputError(f"{name} must be numbers of shape (n, d), got {x.dtype} of shape {x.shape}")
    with np.errstate(over="ignore"):
        rows = np.ascontiguousarray(x, dtype=np.float32)
    if not np.isfinite(rows).all():
        raise InputError(f"{name} has numbers that are not finite in float32")
    return rows


def _labels(y: NDArray[Any], name: str) -> NDArray[Any]:
    if y.ndim != 1 or y.dtype.kind not in "iuU":
        raise InputError(
            f"{name} must be labels of shape (n,), whole numbers or text, got {y.dtype} of shape {y.shape}"
        )
    return y.astype(np.int64) if y.dtype.kind in "iu" else y


def _read_folder(folder: Path) -> Arrays:
    arrays = {}
    for name in PARTS:
        path = folder / f"{name}.npy"
        if not path.is_file():
            raise FileNotFoundError(f"{folder} has no {path.name}: expected {', '.join(f'{n}.npy' for n in PARTS)}")
        with path.open("rb") as file:
            arrays[name] = _read_npy(file, path.stat().st_size, str(path))
    return arrays


def _read_npz(path: Path) -> Arrays:
    try:
        with ZipFile(path) as archive:
            members = {info.filename.removesuffix(".npy"): info for info in archive.infolist()}
            missing = [name for name in PARTS if name not in members]
            if missing:
                raise InputError(f"{path} has no {', '.join(missing)}: expected {', '.join(PARTS)}, got {[*members]}")
            arrays = {}
            for name in PARTS:
                with archive.open(members[name]) as file:
                    arrays[name] = _read_npy(file, members[name].file_size, f"{name} of {path}")
            return arrays
    except (BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError, OSError) as error:
        raise FileFormatError(f"{path} is not an .npz file or is damaged: {error}") from error


def _read_npy(file: Any, size: int, name: str) -> NDArray[Any]:
    """Read one array; check its type and shape against the size of the file before allocating memory."""
    try:
        shape, by_columns, dtype = _header(file)
        if dtype.hasobject:
            raise InputError(
                f"{name} holds Python objects, which are not read: save numbers, or text as an array of str"
            )
        if size != file.tell() + dtype.itemsize * int(np.prod(shape, dtype=object)):
            raise FileFormatError(f"{name} is truncated: {size} bytes for {dtype} of shape {shape}")
        flat = np.frombuffer(file.read(), dtype=dtype)
    except (InputError, FileFormatError):
        raise
    except (ValueError, EOFError, TypeError, OverflowError) as error:
        raise FileFormatError(f"{name} is not an .npy file or is damaged: {error}") from error
    return flat.reshape(shape, order="F" if by_columns else "C")


def _header(file: BinaryIO) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    version = npy.read_magic(file)
    read = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
    return read(file)


def _read_parquet(path: Path) -> Arrays:
    try:
        parquet = import_module("pyarrow.parquet")
    except ImportError as error:
        raise InputError(f"reading {path} needs the package pyarrow: pip install 'dsal-learn[parquet]'") from error
    broken = import_module("pyarrow").ArrowException
    try:
        table = parquet.read_table(path)
    except (broken, OSError, ValueError) as error:
        raise FileFormatError(f"{path} is not a parquet file or is damaged: {error}") from error
    names = table.column_names
    if not {"label", "split"} <= {*names}:
        raise InputError(f"{path} must have the columns label and split, got {', '.join(names[:10])}")
    split = np.array(table["split"].to_pylist(), dtype=object)
    unknown = sorted({str(value) for value in split} - {"train", "test"})
    if unknown:
        raise InputError(f"{path}: split must be train or test, got {', '.join(unknown[:5])}")
    x, y = _parquet_features(table, path), _parquet_labels(table, path)
    return {f"{part}_{name}": rows[split == part] for part in ("train", "test") for name, rows in (("x", x), ("y", y))}


def _parquet_features(table: Any, path: Path) -> NDArray[Any]:
    """Return the features (n, d) of a table; nulls are refused."""
    if "features" in table.column_names:
        lists = table["features"].combine_chunks()
        nested = "list" in str(lists.type).split("<")[0]
        if (
            not nested
            or len(import_module("pyarrow.compute").list_value_length(lists).unique()) != 1
            or lists.null_count
        ):
            raise InputError(f"{path}: features must be lists of numbers, all of the same length")
        flat = lists.flatten()
        if flat.null_count:
            raise InputError(f"{path}: features has nulls")
        return np.asarray(flat).reshape(len(lists), -1)
    columns = [name for name in table.column_names if name not in ("label", "split")]
    if not columns:
        raise InputError(
            f"{path} has no features: expected a column of lists named features, or one column per feature"
        )
    empty = [name for name in columns if table[name].null_count]
    if empty:
        raise InputError(f"{path}: the column {empty[0]} has nulls")
    arrays = [np.asarray(table[name]) for name in columns]
    wrong = [name for name, array in zip(columns, arrays, strict=True) if array.dtype.kind not in "fiu"]
    if wrong:
        raise InputError(f"{path}: all columns except label and split must hold numbers, but {wrong[0]} does not")
    return np.stack(arrays, axis=1)


def _parquet_labels(table: Any, path: Path) -> NDArray[Any]:
    values = table["label"].to_pylist()
    if not all(isinstance(value, str) for value in values) and not all(type(value) is int for value in values):
        raise InputError(f"{path}: label must be whole numbers or text, in every row")
    return np.array(values)
