"""CIFAR-100 and CIFAR-10 (Krizhevsky, 2009) in their official Python layout, unpacked or as the archive itself.

Both have 50,000 + 10,000 colour images of 32x32; the 100 classes are the fine ones.

The files are pickles. A pickle is a program: it can name any importable object and call it. This reader resolves no
import at all. The few NumPy names that a pickled uint8 array needs resolve to stand-ins defined here, which accept only
plain uint8 data; any other name is refused.
"""

from __future__ import annotations

import gzip
import math
import pickle
import tarfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import BinaryIO, cast

import numpy as np
import torch
from numpy.typing import NDArray

from dsal.base.progress import OnProgress
from dsal.data.dataset import DATASETS, Archive, DataSet, find_archive, fingerprint
from dsal.data.samples import ImageData
from dsal.errors import FileFormatError, MissingDataError

Opener = Callable[[str], BinaryIO]


@dataclass(frozen=True)
class Layout:
    """File names and keys of one of the two archives."""

    name: str
    archive: Archive
    folder: str
    train: tuple[str, ...]
    test: tuple[str, ...]
    meta: str
    labels_key: str
    names_key: str
    classes: int


CIFAR100 = Layout(
    name="cifar100",
    archive=Archive(
        url="https://www.cs.toronto.edu/~kriz/cifar-100-python.tar.gz",
        sha256="85cd44d02ba6437773c5bbd22e183051d648de2e7d6b014e1ef29b855ba677a7",
    ),
    folder="cifar-100-python",
    train=("train",),
    test=("test",),
    meta="meta",
    labels_key="fine_labels",
    names_key="fine_label_names",
    classes=100,
)

CIFAR10 = Layout(
    name="cifar10",
    archive=Archive(
        url="https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz",
        sha256="6d958be074577803d12ecdefd02955f39262c83c16fe9348329d7fe0b5c001ce",
    ),
    folder="cifar-10-batches-py",
    train=tuple(f"data_batch_{i}" for i in range(1, 6)),
    test=("test_batch",),
    meta="batches.meta",
    labels_key="labels",
    names_key="label_names",
    classes=10,
)


def _load(layout: Layout, root: Path, download: bool = False, progress: OnProgress | None = None) -> DataSet:
    """Load one of the data sets."""
    folder = root / layout.folder
    archive = find_archive(layout.name, layout.archive, folder, download, progress)
    with _open_folder(folder) if folder.is_dir() else _open_archive(archive, layout.folder) as opener:
        names = _class_names(layout, opener)
        train = _images(layout, layout.train, opener)
        test = _images(layout, layout.test, opener)
    return DataSet(layout.name, train, test, names, fingerprint(train, test))


for _layout in (CIFAR100, CIFAR10):
    DATASETS.register(_layout.name)(partial(_load, _layout))


@contextmanager
def _open_folder(folder: Path) -> Iterator[Opener]:
    def opener(member: str) -> BinaryIO:
        try:
            return (folder / member).open("rb")
        except FileNotFoundError:
            raise MissingDataError(
                f"{folder / member} is missing: unpack the whole archive into {folder.parent}, "
                f"or remove {folder} and put the archive there instead"
            ) from None

    yield opener


@contextmanager
def _open_archive(archive: Path, folder: str) -> Iterator[Opener]:
    """Read members straight from the archive: nothing is unpacked, so no path inside it can do harm."""
    try:
        with gzip.open(archive) as stream, tarfile.open(fileobj=stream) as tar:

            def opener(member: str) -> BinaryIO:
                try:
                    file = tar.extractfile(f"{folder}/{member}")
                except KeyError:
                    file = None
                if file is None:
                    raise FileFormatError(f"{archive} has no file {folder}/{member}: it is not in the official layout")
                return cast(BinaryIO, file)

            yield opener
            while stream.read(1 << 20):  # gzip checks its checksum only at the end of the file
                pass
    except (tarfile.TarError, EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise FileFormatError(
            f"{archive} is truncated, corrupt or not a tar archive ({error}); delete it and download it again"
        ) from error


def _class_names(layout: Layout, opener: Opener) -> tuple[str, ...]:
    with opener(layout.meta) as file:
        names = load_restricted(file, f"{layout.folder}/{layout.meta}").get(layout.names_key)
    if not isinstance(names, list) or len(names) != layout.classes:
        raise FileFormatError(f"{layout.meta} must hold {layout.classes} names under {layout.names_key!r}")
    return tuple(name.decode("latin1") if isinstance(name, bytes) else str(name) for name in names)


def _images(layout: Layout, members: tuple[str, ...], opener: Opener) -> ImageData:
    images, labels = [], []
    for member in members:
        with opener(member) as file:
            content = load_restricted(file, f"{layout.folder}/{member}")
        pixels, numbers = content.get("data"), content.get(layout.labels_key)
        if not isinstance(pixels, np.ndarray) or pixels.ndim != 2 or pixels.shape[1] != 3 * 32 * 32:
            raise FileFormatError(f"{member} must hold uint8 pixels (N, 3072) under 'data'")
        if not isinstance(numbers, list) or len(numbers) != len(pixels):
            raise FileFormatError(f"{member} must hold one label per image under {layout.labels_key!r}")
        if not all(type(number) is int and 0 <= number < layout.classes for number in numbers):
            raise FileFormatError(f"{member} holds labels outside 0..{layout.classes - 1}")
        images.append(pixels)
        labels.extend(numbers)
    stacked = np.concatenate(images).reshape(-1, 3, 32, 32)
    return ImageData(torch.from_numpy(stacked), torch.tensor(labels, dtype=torch.int64))


def load_restricted(file: BinaryIO, where: str) -> dict[str, object]:
    """Read one pickled dict of containers, numbers, strings and uint8 arrays.

    Args:
        file: the pickle, open for reading.
        where: what to call the file in errors.

    Returns:
        the dict; keys that were ``bytes`` (written by Python 2) come back as ``str``.

    Raises:
        FileFormatError: the pickle is truncated or corrupt, holds no dict, or asks for anything else; the message says
            what.
    """
    try:
        # latin1 turns the byte strings of Python 2 into str one to one, so that array data survives.
        content = _Unpickler(file, encoding="latin1").load()
        if not isinstance(content, dict):
            raise FileFormatError(f"expected a dict, got a {type(content).__name__}")
        return {_text(key): value.values() if isinstance(value, _Array) else value for key, value in content.items()}
    except FileFormatError as error:
        raise FileFormatError(f"{where}: {error}") from None
    except Exception as error:  # a damaged pickle can raise anything, as the pickle documentation warns
        raise FileFormatError(
            f"{where} is truncated, corrupt or not a pickle ({type(error).__name__}: {error})"
        ) from error


def _text(key: object) -> str:
    return key.decode("latin1") if isinstance(key, bytes) else str(key)


class _Dtype:
    """Stand-in for ``numpy.dtype`` that accepts only uint8."""

    def __init__(self, code: object, *_: object) -> None:
        if code not in ("u1", b"u1", "|u1"):
            raise FileFormatError(f"refused an array of type {code!r}; only uint8 arrays are read")

    def __setstate__(self, state: object) -> None:
        """Ignore byte order and alignment, which mean nothing for single bytes."""


class _Array:
    """Stand-in for ``numpy.ndarray`` until its bytes have been read."""

    def __init__(self) -> None:
        self._values: NDArray[np.uint8] | None = None

    def __setstate__(self, state: tuple[object, ...]) -> None:
        _, shape, dtype, fortran, data = state
        self._values = _array(data, dtype, shape, "F" if fortran else "C")

    def values(self) -> NDArray[np.uint8]:
        if self._values is None:
            raise FileFormatError("an array has no content")
        return self._values


def _array(data: object, dtype: object, shape: object, order: str) -> NDArray[np.uint8]:
    raw = data.encode("latin1") if isinstance(data, str) else data
    if not isinstance(raw, bytes | bytearray) or not isinstance(dtype, _Dtype) or not isinstance(shape, tuple):
        raise FileFormatError("an array is not made of plain bytes")
    if not all(isinstance(n, int) and n >= 0 for n in shape) or math.prod(shape) != len(raw):
        raise FileFormatError(f"an array of shape {shape} cannot hold {len(raw)} bytes")
    return np.frombuffer(raw, dtype=np.uint8).reshape(shape, order="F" if order == "F" else "C")


def _reconstruct(*_: object) -> _Array:
    """Stand in for NumPy's empty array; shape and content follow in ``__setstate__``."""
    return _Array()


_STAND_INS: dict[tuple[str, str], Callable[..., object]] = {
    ("numpy", "ndarray"): _Array,
    ("numpy", "dtype"): _Dtype,
    ("numpy.core.multiarray", "_reconstruct"): _reconstruct,  # NumPy 1, and the official archives
    ("numpy._core.multiarray", "_reconstruct"): _reconstruct,
    ("numpy.core.numeric", "_frombuffer"): _array,  # pickle protocol 5
    ("numpy._core.numeric", "_frombuffer"): _array,
}


class _Unpickler(pickle._Unpickler):
    """The standard library's pure-Python reader: the one in C lets ten bytes of a bad file claim all memory."""

    def find_class(self, module: str, name: str) -> Callable[..., object]:
        try:
            return _STAND_INS[module, name]
        except KeyError:
            raise FileFormatError(
                f"the pickle asks for {module}.{name}, which no CIFAR file needs; it was not read"
            ) from None

    def get_extension(self, code: int) -> None:
        raise FileFormatError(f"the pickle asks for extension {code}, which no CIFAR file needs; it was not read")

    def persistent_load(self, pid: object) -> object:
        raise FileFormatError("the pickle asks for a persistent object, which no CIFAR file needs; it was not read")
