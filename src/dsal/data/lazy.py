"""Images that stay in their files until they are wanted: data sets too large for memory, of images of any size."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from dsal.data.dataset import ImageData, Progress
from dsal.data.decode import decode_batches
from dsal.errors import InputError, MemoryNeededError
from dsal.memory import available_bytes


@dataclass(frozen=True, eq=False)
class FileData:
    """Image files with their labels; the lazy sibling of :class:`~dsal.data.dataset.ImageData`.

    Attributes:
        paths: one file an image.
        labels: int64, (N,), numbers of classes from 0.
    """

    paths: tuple[Path, ...]
    labels: Tensor

    def __post_init__(self) -> None:
        if self.labels.dtype != torch.int64 or self.labels.shape != (len(self.paths),):
            raise InputError(f"labels must be int64 of shape ({len(self.paths)},), one per file")

    def __len__(self) -> int:
        return len(self.paths)

    def cut(self, rows: slice) -> FileData:
        """Some neighbouring images, in their files."""
        return FileData(self.paths[rows], self.labels[rows])

    def batches(self, batch_size: int, size: int, channels: int) -> Iterator[Tensor]:
        """Yield the images in order, uint8 (n, channels, size, size); decoding goes on while a batch is used."""
        for batch in decode_batches(self.paths, size, channels, batch_size=batch_size):
            yield torch.from_numpy(batch.images)

    def in_memory(self, rows: Tensor, size: int, channels: int = 3, progress: Progress | None = None) -> ImageData:
        """Decode the images of ``rows`` (n,) and hold them: n * channels * size^2 bytes.

        Raises:
            MemoryNeededError: they do not fit.
        """
        needed, available = len(rows) * channels * size**2, available_bytes(torch.device("cpu"))
        if available is not None and needed > available:
            raise MemoryNeededError(
                f"{len(rows)} images of {size}x{size} pixels need {needed / 1e9:.1f} GB and {available / 1e9:.1f} GB "
                "are available: take fewer classes, smaller images, or a larger machine"
            )
        images = torch.empty(len(rows), channels, size, size, dtype=torch.uint8)
        chosen = FileData(tuple(self.paths[row] for row in rows.tolist()), self.labels[rows])
        done = 0
        for batch in chosen.batches(64, size, channels):
            images[done : done + len(batch)] = batch
            done += len(batch)
            if progress is not None:
                progress(done, len(rows))
        return ImageData(images, chosen.labels)


def files_fingerprint(folder: Path, *parts: FileData) -> str:
    """sha256 over names below ``folder``, sizes in bytes and labels; content is not read, which would take hours."""
    digest = hashlib.sha256()
    for part in parts:
        for path, label in zip(part.paths, part.labels.tolist(), strict=True):
            digest.update(f"{path.relative_to(folder).as_posix()} {path.stat().st_size} {label}\n".encode())
        digest.update(b"\n")
    return digest.hexdigest()
