"""CIFAR-100 and CIFAR-10 (Krizhevsky, 2009) in their official Python layout, unpacked or as the archive itself."""

from __future__ import annotations

import gzip
import tarfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, cast

import numpy as np
import torch

from dsal.base.progress import OnProgress
from dsal.data.dataset import DATASETS, DataSet, fingerprint
from dsal.data.samples import ImageData
from dsal.data.sets.download import Archive, download_archive
from dsal.data.sets.pickles import load_restricted
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


@DATASETS.register("cifar100")
def load_cifar100(root: Path, download: bool = False, progress: OnProgress | None = None) -> DataSet:
    """Load CIFAR-100: 50,000 + 10,000 colour images of 32x32, 100 fine classes."""
    return _load(CIFAR100, root, download, progress)


@DATASETS.register("cifar10")
def load_cifar10(root: Path, download: bool = False, progress: OnProgress | None = None) -> DataSet:
    """Load CIFAR-10: 50,000 + 10,000 colour images of 32x32, 10 classes."""
    return _load(CIFAR10, root, download, progress)


def _load(layout: Layout, root: Path, download: bool, progress: OnProgress | None) -> DataSet:
    folder, archive = root / layout.folder, root / layout.archive.filename
    if not folder.is_dir() and not archive.is_file():
        if not download:
            raise MissingDataError(
                f"{layout.name} is not under {root}. Put the official archive there as {archive} "
                f"(from {layout.archive.url}), or the unpacked folder as {folder}, or allow the download."
            )
        download_archive(layout.archive, archive, progress)
    with _open_folder(folder) if folder.is_dir() else _open_archive(archive, layout.folder) as opener:
        names = _class_names(layout, opener)
        train = _images(layout, layout.train, opener)
        test = _images(layout, layout.test, opener)
    return DataSet(layout.name, train, test, names, fingerprint(train, test))


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
