"""Data sets of images, and the registry of those that can be loaded by name."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from torch import Tensor

from dsal.base.progress import OnProgress
from dsal.base.registry import Registry
from dsal.data.images.image_files import FileData
from dsal.data.samples import ImageData

EMBEDDED = Path(__file__).parent / "embedded"
"""The folder of data that ships with the package."""


@dataclass(frozen=True, eq=False)
class DataSet:
    """A data set of images in its two parts; ``fingerprint`` is the sha256 of its content, row order included.

    The images of a part are in memory or in files. Either way they are :class:`~dsal.data.samples.Samples`; ``at`` sets
    the size to which images in files are decoded, and ``in_memory`` decodes all of them at once.
    """

    name: str
    train: ImageData | FileData
    test: ImageData | FileData
    class_names: tuple[str, ...]
    fingerprint: str

    def at(self, size: int, channels: int) -> DataSet:
        """Return the same data set at ``size`` x ``size`` pixels; images in files get ``channels`` channels."""
        return replace(self, train=self.train.at(size, channels), test=self.test.at(size, channels))

    def keep(self, rows: Tensor) -> DataSet:
        """Return the same data set with only some of the training samples."""
        return replace(self, train=self.train.take(rows))


Loader = Callable[[Path, bool, OnProgress | None], DataSet]
"""(data root, whether to download what is missing, progress in bytes) -> data set."""

DATASETS: Registry[Loader] = Registry("data set", group="dsal.datasets")


def data_root() -> Path:
    """Return the default folder of data sets."""
    return Path(os.environ.get("DSAL_DATA") or Path.home() / ".cache" / "dsal").expanduser()


def fingerprint(*parts: ImageData) -> str:
    """Return the sha256 of the shapes, pixels and labels of ``parts``, in row order."""
    digest = hashlib.sha256()
    for part in parts:
        digest.update(repr(tuple(part.images.shape)).encode())
        digest.update(part.images.contiguous().numpy().data)
        digest.update(part.labels.contiguous().numpy().data)
    return digest.hexdigest()
