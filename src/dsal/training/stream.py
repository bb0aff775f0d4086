"""Training batches from image files: decoded, cropped and mirrored by processes that work a few batches ahead.

The crop of an image depends only on (seed, epoch, position in the epoch), so batches do not depend on the number of
readers, nor on how many ranks share them: each reads only its own images.

Memory: ``AHEAD`` + 1 batches, and some 40 MB and one decoded photograph per reader, however many files are listed.
"""

from __future__ import annotations

import math
import os
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from dsal.data.images.crop_readers import CropRequest, Readers
from dsal.data.images.image_files import FileData
from dsal.errors import InputError

AHEAD = 2
"""Batches that are read while another is used for training."""
_CHUNK = 16  # images per request, at most: enough to make dispatch cheap


@dataclass(frozen=True)
class Wanted:
    """A batch to read.

    Attributes:
        rows: indices of the files (n,).
        positions: positions of these images in the epoch (n,).
        size: side in pixels.
    """

    rows: Tensor
    positions: Tensor
    size: int


@dataclass(frozen=True)
class Crops:
    """The images of an epoch in batches, cropped at random or in the middle.

    Args:
        files: the images.
        seed: of the epoch.
        random: take random crops and mirror half of them; else the middle of each image, as for testing.
        mirror: mirror half of the random crops.
    """

    files: FileData
    seed: int
    random: bool = True
    mirror: bool = True

    def batches(self, wanted: Sequence[Wanted], readers: Readers) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield images (n, C, H, W), uint8, and labels (n,) of one batch after another.

        Images are overwritten when the next batch is requested: copy them to keep them.

        Args:
            wanted: the batches.
            readers: who reads; see :func:`open_readers`.

        Raises:
            FileFormatError: a file cannot be read; the message names it.
        """
        room = len(readers.memory) // (AHEAD + 1)
        queue: deque[tuple[Tensor, list[Future[None]]]] = deque()
        try:
            for number, batch in enumerate(wanted):
                for coming in range(number + len(queue), min(number + AHEAD + 1, len(wanted))):
                    queue.append(self._begin(wanted[coming], readers, coming % (AHEAD + 1) * room, room))
                images, parts = queue[0]
                wait(parts)  # sleeps once instead of waking up for every part
                for part in parts:
                    part.result()
                queue.popleft()
                yield images, self.files.labels[batch.rows]
        finally:
            wait([part for _, parts in queue for part in parts if not part.cancel()])

    def _begin(self, batch: Wanted, readers: Readers, start: int, room: int) -> tuple[Tensor, list[Future[None]]]:
        """Request a batch; return the images (n, C, H, W) to be, and what to wait for."""
        rows, positions = batch.rows.tolist(), batch.positions.tolist()
        paths = [os.fspath(self.files.paths[row]) for row in rows]
        whole = CropRequest(
            paths, positions, batch.size, self.files.channels, self.seed, self.random, self.mirror, start
        )
        if whole.nbytes > room:
            raise InputError(f"a batch of {whole.nbytes} bytes does not fit into the {room} bytes reserved for it")
        images = whole.part(readers.memory)
        chunk = min(_CHUNK, math.ceil(len(rows) / readers.workers))
        parts = []
        for at in range(0, len(rows), chunk):
            some, first = slice(at, at + chunk), start + images[:at].nbytes
            parts.append(readers.read(replace(whole, paths=paths[some], positions=positions[some], start=first)))
        return torch.from_numpy(images).permute(0, 3, 1, 2), parts


def open_readers(workers: int, images: int, size: int, channels: int) -> Readers:
    """Return readers with memory for batches of up to ``images`` images of ``size`` x ``size`` pixels."""
    return Readers(workers, (AHEAD + 1) * images * size**2 * channels)


def default_workers() -> int:
    """Return the default number of readers: this process's processors, shared with the machine's other ranks."""
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, allowed // int(os.environ.get("LOCAL_WORLD_SIZE", "1")))
