"""Random crops of image files: which part of an image is taken, and reading it.

The crop depends only on (seed, position in the epoch), so the same pixels are read in any order by any process.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from random import Random

import numpy as np
from numpy.typing import NDArray

from dsal.data.images.decode import decode_crop, decode_image

AREA, RATIO = (0.08, 1.0), (3 / 4, 4 / 3)
"""Fraction of the area and width / height of a random crop, as is usual on ImageNet."""
_TRIES = 10


@dataclass(frozen=True)
class CropRequest:
    """Crops to read, and where to write them.

    Attributes:
        paths: the files (n).
        positions: positions of these images in the epoch (n).
        size: side of the crops in pixels.
        channels: 3 for colour, 1 for grey.
        seed: of the epoch.
        random: take random crops; else the middle of each image, as for testing.
        mirror: mirror half of the random crops.
        start: where the crops begin in memory.
    """

    paths: Sequence[str]
    positions: Sequence[int]
    size: int
    channels: int
    seed: int
    random: bool
    mirror: bool
    start: int = 0

    @property
    def nbytes(self) -> int:
        """Size of the crops."""
        return len(self.paths) * self.size**2 * self.channels

    def part(self, memory: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """Return the part of ``memory`` (bytes,) where the crops are written, as (n, size, size, channels)."""
        return memory[self.start : self.start + self.nbytes].reshape(-1, self.size, self.size, self.channels)


def read_crops(request: CropRequest, memory: NDArray[np.uint8]) -> None:
    """Read the requested crops into ``memory`` (bytes,).

    Raises:
        FileFormatError: a file cannot be read; the message names it.
    """
    size, channels, out = request.size, request.channels, request.part(memory)
    for place, path, position in zip(out, map(Path, request.paths), request.positions, strict=True):
        if not request.random:
            place[:] = decode_image(path, size, channels).transpose(1, 2, 0)
            continue
        draw = Random(f"{request.seed} {position}")  # a text seed is hashed: neighbours share nothing
        flip = draw.random() < 0.5 and request.mirror
        place[:] = decode_crop(path, size, channels, partial(random_box, draw=draw), mirror=flip)


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
