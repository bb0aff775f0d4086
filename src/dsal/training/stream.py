"""Training batches from image files: decoded, cropped and mirrored by threads that work a few batches ahead.

The crop of an image depends only on (seed, epoch, position in the epoch), so batches do not depend on the number of
threads, nor on how many processes share them: each reads only its own images.

Threads, not processes: Pillow decodes and resizes without the interpreter's lock, and threads write straight into the
batch. They still wait for the lock in between, which costs a third of the speed if photographs are small and the
machine is otherwise idle (docs/imagenet.md). Memory: ``AHEAD`` + 2 batches and one decoded photograph per thread,
however many files are listed.
"""

from __future__ import annotations

import math
import os
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from functools import partial
from random import Random

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dsal.data.decode import decode_crop, decode_image
from dsal.data.files import FileData
from dsal.errors import InputError

AHEAD = 2
"""Batches that are read while another is used for training."""
AREA, RATIO = (0.08, 1.0), (3 / 4, 4 / 3)
"""Fraction of the area and width / height of a random crop, as is usual on ImageNet."""
_CHUNK = 8  # images per task: few enough to share a batch evenly, enough to make dispatch cheap
_TRIES = 10


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
    """A reader of batches of images, cropped at random or in the middle.

    Args:
        files: the images.
        seed: of the epoch.
        random: take random crops and mirror half of them; else the middle of each image, as for testing.
        mirror: mirror half of the random crops.
        workers: number of threads.
    """

    files: FileData
    seed: int
    random: bool = True
    mirror: bool = True
    workers: int = 1

    def __post_init__(self) -> None:
        if self.workers < 1:
            raise InputError(f"workers must be at least 1, got {self.workers}")

    def batches(self, wanted: Sequence[Wanted]) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield images (n, C, H, W), uint8, and labels (n,) of one batch after another.

        Raises:
            FileFormatError: a file cannot be read; the message names it.
        """
        pool = ThreadPoolExecutor(self.workers, thread_name_prefix="dsal-read")
        queue: deque[tuple[Wanted, NDArray[np.uint8], list[Future[None]]]] = deque()
        try:
            for number in range(len(wanted)):
                while len(queue) <= AHEAD and number + len(queue) < len(wanted):
                    queue.append(self._begin(pool, wanted[number + len(queue)]))
                batch, out, parts = queue.popleft()
                wait(parts)  # sleeps once; waking up for every part would take Python's lock from the readers
                for part in parts:
                    part.result()
                yield torch.from_numpy(out).permute(0, 3, 1, 2), self.files.labels[batch.rows]
        finally:
            pool.shutdown(wait=True, cancel_futures=True)

    def _begin(self, pool: ThreadPoolExecutor, batch: Wanted) -> tuple[Wanted, NDArray[np.uint8], list[Future[None]]]:
        rows, positions = batch.rows.tolist(), batch.positions.tolist()
        out = np.empty((len(rows), batch.size, batch.size, self.files.channels), np.uint8)
        chunks = [slice(start, start + _CHUNK) for start in range(0, len(rows), _CHUNK)]
        return batch, out, [pool.submit(self._read, out[at], rows[at], positions[at]) for at in chunks]

    def _read(self, out: NDArray[np.uint8], rows: list[int], positions: list[int]) -> None:
        """Fill ``out`` (n, H, W, C)."""
        size, channels = out.shape[1], out.shape[3]
        for place, row, position in zip(out, rows, positions, strict=True):
            path = self.files.paths[row]
            if not self.random:
                place[:] = decode_image(path, size, channels).transpose(1, 2, 0)
                continue
            draw = Random(f"{self.seed} {position}")  # a text seed is hashed: neighbours share nothing
            flip = draw.random() < 0.5 and self.mirror
            choose = partial(random_box, draw=draw)
            place[:] = decode_crop(path, size, channels, choose, mirror=flip)


def random_box(width: int, height: int, draw: Random) -> tuple[int, int, int, int]:
    """Return left, upper, right and lower border of a crop of random area and shape (Szegedy et al., 2015).

    If ten draws do not fit into the image, take its middle, as large as ``RATIO`` allows.
    """
    for _ in range(_TRIES):
        area = width * height * draw.uniform(*AREA)
        ratio = math.exp(draw.uniform(math.log(RATIO[0]), math.log(RATIO[1])))
        w, h = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
        if 0 < w <= width and 0 < h <= height:
            left, upper = draw.randint(0, width - w), draw.randint(0, height - h)
            return left, upper, left + w, upper + h
    w, h = min(width, round(height * RATIO[1])), min(height, round(width / RATIO[0]))
    left, upper = (width - w) // 2, (height - h) // 2
    return left, upper, left + w, upper + h


def default_workers() -> int:
    """Return the default number of threads: this process's processors, shared with the machine's other ranks."""
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, allowed // int(os.environ.get("LOCAL_WORLD_SIZE", "1")))
