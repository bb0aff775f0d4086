"""What a data set is, and the registry of those that can be loaded by name."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from dsal.errors import InputError
from dsal.registry import Registry

if TYPE_CHECKING:
    from dsal.data.lazy import FileData

EMBEDDED = Path(__file__).parent / "embedded"
"""The folder of what ships in the package."""

Progress = Callable[[int, int], None]
"""Called with (done, total); what they count is said where a ``Progress`` is taken."""


@dataclass(frozen=True, eq=False)
class ImageData:
    """Images with their labels.

    Attributes:
        images: uint8, (N, C, H, W).
        labels: int64, (N,), numbers of classes from 0.
    """

    images: Tensor
    labels: Tensor

    def __post_init__(self) -> None:
        if self.images.dtype != torch.uint8 or self.images.ndim != 4:
            raise InputError(
                f"images must be uint8 of shape (N, C, H, W), "
                f"got {self.images.dtype} of shape {tuple(self.images.shape)}"
            )
        if self.labels.dtype != torch.int64 or self.labels.shape != self.images.shape[:1]:
            raise InputError(
                f"labels must be int64 of shape ({len(self.images)},), one per image, "
                f"got {self.labels.dtype} of shape {tuple(self.labels.shape)}"
            )

    def __len__(self) -> int:
        return len(self.labels)

    def cut(self, rows: slice) -> ImageData:
        """Some neighbouring images; they share memory."""
        return ImageData(self.images[rows], self.labels[rows])

    def batches(self, batch_size: int, size: int, channels: int) -> Iterator[Tensor]:
        """Yield the images in order, at most ``batch_size`` at a time; their size and channels stay what they are."""
        yield from torch.split(self.images, batch_size)

    def in_memory(self, rows: Tensor, size: int, channels: int = 3, progress: Progress | None = None) -> ImageData:
        """The images of ``rows`` (n,); their size and channels stay what they are."""
        return ImageData(self.images[rows], self.labels[rows])


@dataclass(frozen=True, eq=False)
class DataSet:
    """A data set of images in its two parts; ``fingerprint`` is the sha256 of its content, row order included.

    The images of a part are in memory or in files. Either way ``batches`` yields all of them in order, ``in_memory``
    gives some of them as :class:`ImageData`, ``cut`` some neighbours as they are, and ``labels`` are at hand.
    """

    name: str
    train: ImageData | FileData
    test: ImageData | FileData
    class_names: tuple[str, ...]
    fingerprint: str


Loader = Callable[[Path, bool, Progress | None], DataSet]
"""(data root, whether to download what is missing, progress in bytes) -> data set."""

DATASETS: Registry[Loader] = Registry("data set", group="dsal.datasets")


def load_dataset(
    name: str, root: Path | None = None, download: bool = False, progress: Progress | None = None
) -> DataSet:
    """Load a data set by name.

    Args:
        name: one of ``DATASETS.names()``.
        root: folder the data sets live in; by default the environment variable ``DSAL_DATA``, else ``~/.cache/dsal``.
        download: fetch the data set from its official address when it is not under ``root``.
        progress: called with (bytes so far, bytes in all) while downloading.

    Raises:
        UnknownNameError: no data set of that name.
        MissingDataError: the files are not under ``root``; says which file to put where.
        FileFormatError: a file is torn or is not what its name says.
    """
    return DATASETS.get(name)(data_root() if root is None else Path(root), download, progress)


def data_root() -> Path:
    """The folder data sets live in unless another is named."""
    return Path(os.environ.get("DSAL_DATA") or Path.home() / ".cache" / "dsal").expanduser()


def fingerprint(*parts: ImageData) -> str:
    """sha256 over the shapes, pixels and labels of ``parts``, in their order of rows."""
    digest = hashlib.sha256()
    for part in parts:
        digest.update(repr(tuple(part.images.shape)).encode())
        digest.update(part.images.contiguous().numpy().data)
        digest.update(part.labels.contiguous().numpy().data)
    return digest.hexdigest()
