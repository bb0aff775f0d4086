"""Images that stay in their files until needed: for data sets too large for memory, with images of any size."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import overload

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dsal.base.memory import available_bytes
from dsal.data.images.decode import decode_batches
from dsal.data.samples import ImageData, Rows
from dsal.errors import InputError, MemoryNeededError


class Listing(Sequence[Path]):
    """Paths below one folder, as a sequence; each path object is created on access.

    A million of Python's own path objects would take gigabytes. Memory per path: its text below the folder and 8
    bytes; 8 bytes more in a selection.

    Args:
        folder: common parent of all paths.
        names: paths relative to it, with ``/``.

    >>> listing = Listing(Path("photos"), ["cats/1.jpg", "dogs/1.jpg", "dogs/2.jpg"])
    >>> len(listing), listing[-1].as_posix(), [path.name for path in listing.take(np.array([2, 0]))]
    (3, 'photos/dogs/2.jpg', ['2.jpg', '1.jpg'])
    """

    def __init__(self, folder: Path, names: Iterable[str]) -> None:
        text, ends = bytearray(), [0]
        for name in names:
            text += os.fsencode(name)
            ends.append(len(text))
        self.folder, self._text = folder, bytes(text)
        self._ends = np.array(ends, dtype=np.int64)
        self._rows: NDArray[np.int64] | None = None  # None: all of them, in order

    def __len__(self) -> int:
        return len(self._ends) - 1 if self._rows is None else len(self._rows)

    @overload
    def __getitem__(self, at: int) -> Path: ...
    @overload
    def __getitem__(self, at: slice) -> Listing: ...
    def __getitem__(self, at: int | slice) -> Path | Listing:
        if isinstance(at, slice):
            return self.take(np.arange(len(self))[at])
        return self.folder / self.name(at)

    def name(self, at: int) -> str:
        """Return path number ``at``, relative to the folder, with ``/``."""
        row = range(len(self))[at] if self._rows is None else int(self._rows[at])
        return os.fsdecode(self._text[self._ends[row] : self._ends[row + 1]])

    def take(self, rows: NDArray[np.int64]) -> Listing:
        """Return some of the paths; the text is shared."""
        some = object.__new__(Listing)
        some.folder, some._text, some._ends = self.folder, self._text, self._ends
        some._rows = np.array(rows if self._rows is None else self._rows[rows], dtype=np.int64)
        return some


@dataclass(frozen=True, eq=False)
class FileData:
    """Image files with their labels; the lazy sibling of :class:`~dsal.data.samples.ImageData`.

    Attributes:
        paths: one file per image; a :class:`Listing` if there are many.
        labels: int64, (N,), class numbers from 0.
        size: side in pixels to which images are decoded.
        channels: 3 for colour, 1 for grey.
    """

    paths: Sequence[Path]
    labels: Tensor
    size: int = 224
    channels: int = 3

    def __post_init__(self) -> None:
        if self.labels.dtype != torch.int64 or self.labels.shape != (len(self.paths),):
            raise InputError(f"labels must be int64 of shape ({len(self.paths)},), one per file")

    def __len__(self) -> int:
        return len(self.paths)

    def take(self, rows: Rows) -> FileData:
        """Return some of the images, which stay in their files."""
        if isinstance(rows, slice):
            chosen = self.paths[rows]
        elif isinstance(self.paths, Listing):
            chosen = self.paths.take(rows.cpu().numpy())
        else:
            chosen = tuple(self.paths[row] for row in rows.tolist())
        return replace(self, paths=chosen, labels=self.labels[rows])

    def relabel(self, labels: Tensor) -> FileData:
        """Return the same images with other labels (n,)."""
        return replace(self, labels=labels)

    def at(self, size: int, channels: int) -> FileData:
        """Return the same images, decoded to ``size`` x ``size`` pixels and ``channels`` channels."""
        return replace(self, size=size, channels=channels)

    def batches(self, size: int, order: Tensor | None = None) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield images, uint8 (n, C, H, W), and labels (n,), ``size`` at a time; threads decode ahead."""
        wanted = self if order is None else self.take(order)
        batches = decode_batches(wanted.paths, self.size, self.channels, batch_size=size)
        for number, images in enumerate(batches):
            yield torch.from_numpy(images), wanted.labels[number * size : number * size + len(images)]

    def in_memory(self) -> ImageData:
        """Decode all images into memory: N * channels * size^2 bytes.

        Raises:
            MemoryNeededError: they do not fit.
        """
        n, size = len(self), self.size
        needed, available = n * self.channels * size**2, available_bytes(torch.device("cpu"))
        if available is not None and needed > available:
            raise MemoryNeededError(
                f"{n} images of {size}x{size} pixels need {needed / 1e9:.1f} GB and {available / 1e9:.1f} GB "
                "are available: take fewer classes, smaller images, or a larger machine"
            )
        images = torch.empty(n, self.channels, size, size, dtype=torch.uint8)
        done = 0
        for batch, _ in self.batches(64):
            images[done : done + len(batch)] = batch
            done += len(batch)
        return ImageData(images, self.labels)


def files_fingerprint(*parts: FileData) -> str:
    """Return the sha256 of names, sizes in bytes and labels; reading the content would take hours."""
    digest = hashlib.sha256()
    for part in parts:
        paths = part.paths
        for row, label in enumerate(part.labels.tolist()):
            name = paths.name(row) if isinstance(paths, Listing) else paths[row].name
            digest.update(f"{name} {paths[row].stat().st_size} {label}\n".encode())
        digest.update(b"\n")
    return digest.hexdigest()
