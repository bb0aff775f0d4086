"""Image files to pixels: any mode Pillow reads, upright, one size, several files at a time.

A file comes out as a viewer would show it: turned as its EXIF orientation says, the first frame of an animation,
transparency on white, 16-bit greys scaled to 8 bits. Its shorter side is resized and the middle cropped, in one step.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice
from os import cpu_count
from pathlib import Path

import numpy as np
import torch
from PIL import Image, ImageOps, UnidentifiedImageError
from torch import Tensor

from dsal.errors import FileFormatError, InputError, UnknownNameError

CROP = 0.875  # share of the shorter side that stays: the habit of ImageNet's networks (224 of 256)
BROKEN = ("stop", "skip")


@dataclass(frozen=True, eq=False)
class Decoded:
    """A batch of images that could be read.

    Attributes:
        rows: number of each image among all files asked for.
        images: uint8, (n, channels, size, size).
        broken: files of this batch that could not be read, with the reason.
    """

    rows: list[int]
    images: Tensor
    broken: list[str]


def decode_image(path: Path, size: int, channels: int = 3, crop: float = CROP) -> Tensor:
    """Read one image file.

    Args:
        path: of any format Pillow reads.
        size: side of the result in pixels.
        channels: 3 for colour, 1 for grey.
        crop: side of the square that is kept, as a share of the image's shorter side.

    Returns:
        uint8, (channels, size, size).

    Raises:
        FileFormatError: no such file, or it is empty, torn, too large, or no image; the message names it.
    """
    try:
        with Image.open(path) as file:
            file.draft(file.mode, (2 * size, 2 * size))  # a JPEG twice as large as needed is decoded at a fraction
            upright = ImageOps.exif_transpose(_eight_bits(file))
            pixels = np.array(_square(upright.convert("RGB" if channels == 3 else "L"), size, crop))
    # Pillow's readers answer damaged data with many kinds of exception; all mean that this file is no use.
    except (OSError, ValueError, SyntaxError, EOFError, ArithmeticError, LookupError, TypeError, MemoryError) as error:
        raise FileFormatError(f"cannot read the image {path}: {_reason(path, error)}") from error
    except Image.DecompressionBombError as error:
        raise FileFormatError(f"cannot read the image {path}: {error}") from error
    return torch.from_numpy(pixels).view(size, size, channels).permute(2, 0, 1)


def decode_batches(
    paths: Sequence[Path],
    size: int,
    channels: int = 3,
    *,
    crop: float = CROP,
    batch_size: int = 64,
    broken: str = "stop",
    workers: int | None = None,
) -> Iterator[Decoded]:
    """Read image files in order, in threads that work ahead by two batches.

    Args:
        paths: files.
        size: side of the results in pixels.
        channels: 3 for colour, 1 for grey.
        crop: see :func:`decode_image`.
        batch_size: files at a time.
        broken: ``"stop"`` at the first file that cannot be read, or ``"skip"`` it and tell.
        workers: threads; as many as there are processors by default.

    Raises:
        FileFormatError: with ``broken="stop"``, at the first file that cannot be read.
    """
    if broken not in BROKEN:
        raise UnknownNameError("way with broken images", broken, BROKEN)
    if batch_size < 1:
        raise InputError(f"batch size must be at least 1, got {batch_size}")
    pool = ThreadPoolExecutor(workers or cpu_count() or 1, thread_name_prefix="dsal-decode")
    try:
        queue: deque[Future[Tensor]] = deque()
        waiting = iter(paths)
        for start in range(0, len(paths), batch_size):
            wanted = 3 * batch_size - len(queue)
            queue.extend(pool.submit(decode_image, path, size, channels, crop) for path in islice(waiting, wanted))
            rows, images, reasons = [], [], []
            for row in range(start, min(start + batch_size, len(paths))):
                try:
                    images.append(queue.popleft().result())
                    rows.append(row)
                except FileFormatError as error:
                    if broken == "stop":
                        raise
                    reasons.append(str(error))
            stacked = torch.stack(images) if images else torch.empty(0, channels, size, size, dtype=torch.uint8)
            yield Decoded(rows, stacked, reasons)
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _eight_bits(image: Image.Image) -> Image.Image:
    """The image with 8 bits a channel and no transparency; its EXIF data stays."""
    if image.mode.startswith("I;16") or image.mode in ("I", "F"):
        return _scaled(image)
    if "A" in image.getbands() or "transparency" in image.info:
        colours = image.convert("RGBA")
        white = Image.new("RGBA", colours.size, "white")
        white.alpha_composite(colours)
        white.info["exif"] = image.info.get("exif", b"")
        return white
    image.load()
    return image


def _scaled(image: Image.Image) -> Image.Image:
    """Grey levels of 16 bits, or of floating point in 0..1 or 0..255, as 8 bits."""
    values = np.asarray(image, dtype=np.float64)
    if image.mode == "F":
        top = 1.0 if values.max(initial=0.0) <= 1.0 else 255.0
    else:
        top = 65535.0 if image.mode != "I" or values.max(initial=0) > 255 else 255.0
    levels = np.nan_to_num(values * (255.0 / top)).clip(0, 255)
    grey = Image.fromarray(np.rint(levels).astype(np.uint8))
    grey.info["exif"] = image.info.get("exif", b"")
    return grey


def _square(image: Image.Image, size: int, crop: float) -> Image.Image:
    """The middle of an image, ``crop`` times its shorter side wide, at ``size`` x ``size`` pixels."""
    side = min(image.size) * crop
    left, upper = (image.width - side) / 2, (image.height - side) / 2
    box = (left, upper, left + side, upper + side)
    return image.resize((size, size), Image.Resampling.BICUBIC, box=box, reducing_gap=3.0)


def _reason(path: Path, error: BaseException) -> str:
    if not path.is_file():
        return "there is no such file"
    if path.stat().st_size == 0:
        return "the file is empty"
    if isinstance(error, UnidentifiedImageError):
        return "it is not an image, or of a format that is not supported"
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
