"""Samples with their labels: what a phase holds, whether feature rows, images in memory or image files.

:class:`FeatureRows`, :class:`ImageData` and :class:`~dsal.data.files.FileData` are the three implementations.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dsal.errors import InputError
from dsal.progress import OnProgress

Rows = Tensor | slice
"""Rows by number (n,), in any order, or neighbouring ones."""


class Samples(Protocol):
    """Samples that can be read in batches, as often as wanted."""

    @property
    def labels(self) -> Tensor:
        """int64, (n,)."""
        ...

    def __len__(self) -> int: ...

    def take(self, rows: Rows) -> Samples:
        """Return some of the samples; those in files stay there."""
        ...

    def relabel(self, labels: Tensor) -> Samples:
        """Return the same samples with other labels (n,)."""
        ...

    def batches(self, size: int, order: Tensor | None = None) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield samples and labels, ``size`` at a time; the last batch takes what is left.

        Args:
            size: samples in a batch.
            order: rows to read, in this order; by default all of them, first to last.
        """
        ...


@dataclass(frozen=True, eq=False)
class FeatureRows:
    """Features with their labels.

    Attributes:
        x: (n, d), floating point; may be memory-mapped and read-only.
        labels: int64, (n,).
    """

    x: NDArray[Any]
    labels: Tensor

    def __post_init__(self) -> None:
        if self.labels.shape != (len(self.x),):
            raise InputError(f"{len(self.x)} rows of features need as many labels, got {tuple(self.labels.shape)}")

    def __len__(self) -> int:
        return len(self.labels)

    def take(self, rows: Rows) -> FeatureRows:
        """Return some rows: a view for a slice, else a copy."""
        return FeatureRows(self.x[rows if isinstance(rows, slice) else rows.numpy()], self.labels[rows])

    def relabel(self, labels: Tensor) -> FeatureRows:
        """Return the same rows with other labels (n,)."""
        return replace(self, labels=labels)

    def batches(self, size: int, order: Tensor | None = None) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield rows (n, d) and labels (n,), ``size`` at a time."""
        for rows in _split(len(self), size, order):
            some = self.take(rows)
            yield torch.from_numpy(np.array(some.x)), some.labels


@dataclass(frozen=True, eq=False)
class ImageData:
    """Images with their labels, in memory.

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

    def take(self, rows: Rows) -> ImageData:
        """Return some images: a view for a slice, else a copy."""
        return ImageData(self.images[rows], self.labels[rows])

    def relabel(self, labels: Tensor) -> ImageData:
        """Return the same images with other labels (n,)."""
        return replace(self, labels=labels)

    def batches(self, size: int, order: Tensor | None = None) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield images (n, C, H, W) and labels (n,), ``size`` at a time."""
        for rows in _split(len(self), size, order):
            yield self.images[rows], self.labels[rows]

    def at(self, size: int, channels: int) -> ImageData:
        """Return the images themselves: their size and channels are fixed."""
        return self

    def in_memory(self, progress: OnProgress | None = None) -> ImageData:
        """Return the images themselves."""
        return self


def _split(n: int, size: int, order: Tensor | None) -> Iterator[Rows]:
    """Rows of one batch after another."""
    if size < 1:
        raise InputError(f"batch size must be at least 1, got {size}")
    if order is not None:
        yield from order.split(size) if len(order) else ()  # torch splits nothing into one empty batch
    else:
        for start in range(0, n, size):
            yield slice(start, start + size)
