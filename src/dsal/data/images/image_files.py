"""Images that stay in their files until needed: for data sets too large for memory, with images of any size."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor

from dsal.base.memory import available_bytes
from dsal.base.progress import OnProgress
from dsal.data.images.decode import decode_batches
from dsal.data.images.listing import Listing
from dsal.data.samples import ImageData, Rows
from dsal.errors import InputError, MemoryNeededError


@dataclass(frozen=True, eq=False)
class FileData:
    """Image files with their labels; the lazy sibling of :class:`~dsal.data.samples.ImageData`.

    Attributes:
        paths: one file per image; a :class:`~dsal.data.images.listing.Listing` if there are many.
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
        for batch in decode_batches(wanted.paths, self.size, self.channels, batch_size=size):
            yield torch.from_numpy(batch.images), wanted.labels[batch.rows]

    def in_memory(self, progress: OnProgress | None = None) -> ImageData:
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
            if progress is not None:
                progress(done, n)
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
