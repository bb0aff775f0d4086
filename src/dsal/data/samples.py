"""Samples with their labels: what a phase holds, whether feature rows, images in memory or image files.

:class:`FeatureRows`, :class:`ImageData` and :class:`~dsal.data.images.image_files.FileData` implement them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from dsal.errors import InputError

FeatureArray: TypeAlias = "NDArray[Any] | MappedRows"
"""Rows of features, (n, d)."""
Rows = Tensor | slice
"""Row indices (n,), in any order, or a slice."""


_SHRUNK_AT_ONCE = 4096  # images, resized in floating point


class Samples(Protocol):
    """Samples that can be read in batches, any number of times."""

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
        """Yield samples and labels, ``size`` at a time; the last batch may be smaller.

        Args:
            size: samples in a batch.
            order: rows to read, in this order; by default all of them, first to last.
        """
        ...


@dataclass(frozen=True, eq=False)
class MappedRows:
    """Rows (n, d), float16 or float32 on disk, read as float32.

    ``x[rows]`` reads rows, by slice or by index; ``np.asarray(x)`` reads all of them. :meth:`take` and
    :meth:`from_column` read nothing.

    Attributes:
        shards: consecutive arrays, ``size`` rows in each but the last.
        size: rows of a shard.
        total: rows of all shards.
        width: columns of a shard.
        chosen: int64, (n,), the selected rows; None for all of them.
        start: first column.
    """

    shards: tuple[NDArray[Any], ...]
    size: int
    total: int
    width: int
    chosen: NDArray[np.int64] | None = None
    start: int = 0

    dtype = np.dtype(np.float32)
    ndim = 2

    def __len__(self) -> int:
        return self.total if self.chosen is None else len(self.chosen)

    @property
    def shape(self) -> tuple[int, int]:
        """(n, d)."""
        return len(self), self.width - self.start

    def take(self, rows: slice | NDArray[np.int64]) -> MappedRows:
        """Return some of the rows, which stay on disk."""
        return replace(self, chosen=self._numbers(rows))

    def from_column(self, start: int) -> MappedRows:
        """Return the columns from ``start`` on, which stay on disk."""
        return replace(self, start=self.start + start)

    def __getitem__(self, rows: slice | NDArray[np.int64]) -> NDArray[np.float32]:
        numbers = self._numbers(rows)
        out = np.empty((len(numbers), self.width - self.start), dtype=np.float32)
        place = numbers // self.size
        for shard in np.unique(place):
            mine = np.flatnonzero(place == shard)
            inside = numbers[mine] - shard * self.size
            first, last = inside[0], inside[-1]
            if last - first == len(inside) - 1 and (np.diff(inside) == 1).all():  # consecutive: a slice is enough
                out[mine[0] : mine[-1] + 1] = self.shards[shard][first : last + 1, self.start :]
            else:
                out[mine] = self.shards[shard][inside, self.start :]
        return out

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        return np.asarray(self[:], dtype=dtype)

    def _numbers(self, rows: slice | NDArray[np.int64]) -> NDArray[np.int64]:
        if isinstance(rows, slice):
            own = np.arange(*rows.indices(len(self)))
        else:
            own = np.asarray(rows)
            if own.dtype == bool:
                own = np.flatnonzero(own)
            own = np.where(own < 0, own + len(self), own)
            if own.size and not 0 <= own.min() <= own.max() < len(self):
                raise IndexError(f"rows must be from 0 to {len(self) - 1}")
        return own if self.chosen is None else self.chosen[own]


@dataclass(frozen=True, eq=False)
class FeatureRows:
    """Features with their labels.

    Attributes:
        x: (n, d), floating point; may be memory-mapped and read-only, or rows of many files.
        labels: int64, (n,).
    """

    x: FeatureArray
    labels: Tensor

    def __post_init__(self) -> None:
        if self.labels.shape != (len(self.x),):
            raise InputError(f"{len(self.x)} rows of features need as many labels, got {tuple(self.labels.shape)}")

    def __len__(self) -> int:
        return len(self.labels)

    def take(self, rows: Rows) -> FeatureRows:
        """Return some rows: a view for a slice, else a copy; rows of many files stay on disk."""
        chosen = rows if isinstance(rows, slice) else rows.numpy()
        return FeatureRows(self.x.take(chosen) if isinstance(self.x, MappedRows) else self.x[chosen], self.labels[rows])

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
        labels: int64, (N,), class numbers from 0.
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

    @property
    def size(self) -> int:
        """Width of the images in pixels."""
        return self.images.shape[3]

    @property
    def channels(self) -> int:
        """3 for colour, 1 for grey."""
        return self.images.shape[1]

    def take(self, rows: Rows) -> ImageData:
        """Return some images: a view for a slice, else a copy."""
        return replace(self, images=self.images[rows], labels=self.labels[rows])

    def relabel(self, labels: Tensor) -> ImageData:
        """Return the same images with other labels (n,)."""
        return replace(self, labels=labels)

    def batches(self, size: int, order: Tensor | None = None) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield images (n, C, H, W) and labels (n,), ``size`` at a time."""
        for rows in _split(len(self), size, order):
            yield self.images[rows], self.labels[rows]

    def flipped(self) -> ImageData:
        """Return the mirror images."""
        return replace(self, images=self.images.flip(3))

    def at(self, size: int, channels: int) -> ImageData:
        """Return the images, shrunk to ``size`` x ``size`` pixels if they are larger; channels do not change."""
        if size >= self.images.shape[3]:
            return self
        small = [_shrunk(part, size) for part in self.images.split(_SHRUNK_AT_ONCE)]
        return replace(self, images=torch.cat(small) if small else self.images)

    def in_memory(self) -> ImageData:
        """Return the images themselves."""
        return self


@dataclass(frozen=True, eq=False)
class JoinedSamples:
    """Samples of several kinds, concatenated.

    Attributes:
        parts: samples of the same shape.
        labels: int64, (n,), of all parts.
    """

    parts: tuple[Samples, ...]
    labels: Tensor

    def __len__(self) -> int:
        return len(self.labels)

    def take(self, rows: Rows) -> JoinedSamples:
        """Return some of the samples, part by part; within a part, in the order requested."""
        numbers = torch.arange(len(self))[rows]
        parts, start = [], 0
        for part in self.parts:
            own = numbers[(numbers >= start) & (numbers < start + len(part))] - start
            parts.append(part.take(own))
            start += len(part)
        return JoinedSamples(tuple(parts), torch.cat([part.labels for part in parts]))

    def relabel(self, labels: Tensor) -> JoinedSamples:
        """Return the same samples with other labels (n,)."""
        if labels.shape != self.labels.shape:
            raise InputError(f"{len(self)} samples need as many labels, got {tuple(labels.shape)}")
        split = labels.split([len(part) for part in self.parts])
        parts = tuple(part.relabel(own) for part, own in zip(self.parts, split, strict=True))
        return JoinedSamples(parts, labels)

    def batches(self, size: int, order: Tensor | None = None) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield samples and labels (n,), ``size`` at a time, in the order requested."""
        order = torch.arange(len(self)) if order is None else order.cpu()
        starts = np.cumsum([0, *(len(part) for part in self.parts)])
        for rows in _split(len(self), size, order):
            rows = torch.arange(len(self))[rows]
            place = torch.from_numpy(np.searchsorted(starts, rows.numpy(), side="right")) - 1
            found, where = [], []
            for number, part in enumerate(self.parts):
                mine = torch.nonzero(place == number).flatten()
                if len(mine):
                    found += [x for x, _ in part.batches(len(mine), rows[mine] - int(starts[number]))]
                    where.append(mine)
            back = torch.argsort(torch.cat(where))
            yield torch.cat(found)[back], self.labels[rows]


def joined(parts: Sequence[Samples]) -> Samples:
    """Concatenate the samples of several parts; images in memory become one tensor."""
    if len(parts) == 1:
        return parts[0]
    held = [part for part in parts if type(part) is ImageData]
    if len(held) == len(parts):
        return ImageData(torch.cat([part.images for part in held]), torch.cat([part.labels for part in held]))
    return JoinedSamples(tuple(parts), torch.cat([part.labels for part in parts]))


def _split(n: int, size: int, order: Tensor | None) -> Iterator[Rows]:
    """Yield the rows of one batch after another."""
    if size < 1:
        raise InputError(f"batch size must be at least 1, got {size}")
    if order is not None:
        yield from order.split(size) if len(order) else ()  # torch splits an empty tensor into one empty batch
    else:
        for start in range(0, n, size):
            yield slice(start, start + size)


def _shrunk(images: Tensor, size: int) -> Tensor:
    """Shrink uint8 images (n, C, H, W) to ``size`` x ``size`` pixels, with antialiasing."""
    small = functional.interpolate(images.float(), size=(size, size), mode="bilinear", antialias=True)
    return small.round().clamp(0, 255).to(torch.uint8)
