"""Decoding of images to pixels: any mode, upright, at one size, several at a time.

An image is a path, a file in a zip archive, the bytes of an image file, a Pillow image, or a uint8 array (h, w),
(h, w, 3) or (h, w, 4). A file is decoded as a viewer would show it: rotated by its EXIF orientation, the first frame of
an animation, transparency on white, 16-bit greys scaled to 8 bits. Its shorter side is resized and the middle cropped,
in one step.
"""

from __future__ import annotations

import os
import stat
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from importlib.util import find_spec
from pathlib import Path, PurePath
from threading import Lock
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps, UnidentifiedImageError

from dsal.base.arrays import as_array
from dsal.data.images.formats import eight_bits, open_image
from dsal.data.images.labelled_files import HEIF_HINT, HEIF_SUFFIXES, ZipImage
from dsal.errors import FileFormatError, InputError
from dsal.files.atomic import check_readable

CROP = 0.875  # fraction of the shorter side that is kept, as is usual for ImageNet networks (224 of 256)
BROKEN = ("stop", "skip")
Pixels: TypeAlias = NDArray[np.uint8]
ImageSource: TypeAlias = "Path | ZipImage | bytes | Image.Image | Pixels"
ChooseBox: TypeAlias = Callable[[int, int], tuple[int, int, int, int]]
"""(width, height) of an image -> left, upper, right and lower border of a part of it."""
_ORIENTATION = 0x0112  # EXIF: above 4, width and height are swapped
_SMALL = 2**22  # pixels of images that are decoded at the same time; larger ones take turns
_LARGE = Lock()
_READ = os.O_RDONLY | getattr(os, "O_BINARY", 0) | getattr(os, "O_NONBLOCK", 0)  # opening a pipe must not block


def checked_source(image: Any) -> ImageSource:
    """Check and return an image as users pass it: a path, bytes of an image file, a Pillow image, or uint8 pixels."""
    if isinstance(image, (str, os.PathLike)):
        return Path(image)
    if isinstance(image, (bytes, Image.Image)):
        return image
    if isinstance(image, (bytearray, memoryview)):
        return bytes(image)
    if isinstance(image, np.ndarray):
        pixels: Pixels = np.asarray(as_array(image, "an image"))
        colours = pixels.ndim == 3 and pixels.shape[2] in (3, 4)
        if pixels.dtype == np.uint8 and (pixels.ndim == 2 or colours) and pixels.size:
            return pixels
        got = f"{pixels.dtype} of shape {pixels.shape}"
        raise InputError(f"pixels must be a uint8 array (h, w), (h, w, 3) or (h, w, 4), got {got}")
    raise InputError(
        f"an image is a path, the bytes of an image file, a Pillow image or a uint8 array, not {type(image).__name__}"
    )


def decode_image(
    source: ImageSource, size: int, channels: int = 3, crop: float = CROP, name: str = "", max_pixels: int | None = None
) -> Pixels:
    """Read one image.

    Args:
        source: a path, the bytes of an image file, a Pillow image, or uint8 pixels; formats as in
            :data:`~dsal.data.images.formats.FORMATS`.
        size: side of the result in pixels.
        channels: 3 for colour, 1 for grey.
        crop: side of the square that is kept, as a fraction of the image's shorter side.
        name: what to call it in an error; its path by default.
        max_pixels: refuse larger images, before they are decoded.

    Returns:
        uint8, (channels, size, size).

    Raises:
        FileFormatError: no such file, or it is empty, truncated, too large, or not an image; the message names it.
    """
    name = str(source) if isinstance(source, Path | ZipImage) else name
    try:
        return _decoded(source, size, channels, crop, max_pixels)
    except Exception as error:  # Pillow's readers raise any kind of exception on damaged data
        reason = _reason(source, error)
    raise FileFormatError(f"cannot read the image {name}: {reason}")  # without the frames that hold its pixels


def _decoded(source: ImageSource, size: int, channels: int, crop: float, max_pixels: int | None) -> Pixels:
    with _opened(source, max_pixels) as image:
        image.draft(image.mode, (2 * size, 2 * size))  # decodes a much larger JPEG at a fraction of its size
        with _LARGE if image.width * image.height > _SMALL else nullcontext():
            upright, mode = eight_bits(image), "RGB" if channels == 3 else "L"
            ImageOps.exif_transpose(upright, in_place=True)
            pixels = np.array(_square(upright if upright.mode == mode else upright.convert(mode), size, crop))
            upright.close()
    return pixels.reshape(size, size, channels).transpose(2, 0, 1)


def decode_crop(source: Path, size: int, channels: int, choose: ChooseBox, *, mirror: bool = False) -> Pixels:
    """Read the part of one image that ``choose`` selects, at ``size`` x ``size`` pixels.

    A JPEG is decoded at the smallest fraction (1/2, 1/4, 1/8) at which the part still has that many pixels.

    Args:
        source: a file of :data:`~dsal.data.images.formats.FORMATS`.
        size: side of the result in pixels.
        channels: 3 for colour, 1 for grey.
        choose: called with the width and height of the upright image.
        mirror: swap left and right.

    Returns:
        uint8, (size, size, channels).

    Raises:
        FileFormatError: see :func:`decode_image`.
    """
    try:
        return _cropped(source, size, channels, choose, mirror)
    except Exception as error:  # Pillow's readers raise any kind of exception on damaged data
        reason = _reason(source, error)
    raise FileFormatError(f"cannot read the image {source}: {reason}")


def _cropped(source: Path, size: int, channels: int, choose: ChooseBox, mirror: bool) -> Pixels:
    with _opened(_content(source)) as image:
        width, height = image.size
        orientation = image.getexif().get(_ORIENTATION, 1)
        if orientation > 4:
            width, height = height, width
        left, upper, right, lower = choose(width, height)
        reduction = min(right - left, lower - upper) // size
        if reduction > 1:
            image.draft(image.mode, (image.width // reduction, image.height // reduction))
        upright = eight_bits(image)
        if orientation != 1:
            upright = ImageOps.exif_transpose(upright)
        mode = "RGB" if channels == 3 else "L"
        if upright.mode != mode:
            upright = upright.convert(mode)
        x, y = upright.width / width, upright.height / height
        box = (left * x, upper * y, right * x, lower * y)
        part = upright.resize((size, size), Image.Resampling.BILINEAR, box=box)
        if mirror:  # ten times as fast as a reversed copy in NumPy
            part = part.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    return np.asarray(part).reshape(size, size, channels)


def check_broken(broken: str) -> None:
    """Raise InputError unless ``broken`` is one of :data:`BROKEN`."""
    if broken not in BROKEN:
        raise InputError(f'broken must be "stop" or "skip", not {broken!r}')


def decode_batches(
    sources: Sequence[ImageSource], size: int, channels: int = 3, *, batch_size: int = 64, workers: int | None = None
) -> Iterator[Pixels]:
    """Read images in order, uint8 (n, channels, size, size) at a time, in threads that work ahead by two batches.

    Args:
        sources: see :func:`decode_image`.
        size: side of the results in pixels.
        channels: 3 for colour, 1 for grey.
        batch_size: images at a time.
        workers: number of threads; one per processor by default.

    Raises:
        FileFormatError: at the first file that cannot be read.
    """
    if batch_size < 1:
        raise InputError(f"batch size must be at least 1, got {batch_size}")
    pool = ThreadPoolExecutor(workers or os.cpu_count() or 1, thread_name_prefix="dsal-decode")
    try:
        queue: deque[Future[Pixels]] = deque()
        for start in range(0, len(sources), batch_size):
            for row in range(start + len(queue), min(start + 3 * batch_size, len(sources))):
                queue.append(pool.submit(decode_image, sources[row], size, channels, CROP, f"number {row + 1}"))
            yield np.stack([queue.popleft().result() for _ in range(min(batch_size, len(queue)))])
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


@contextmanager
def _opened(source: ImageSource, max_pixels: int | None = None) -> Iterator[Image.Image]:
    """Open an image, of whose file only the header is read; at the end of the block its pixels are freed.

    A caller's own Pillow image stays open and unchanged.
    """
    if isinstance(source, Image.Image):
        image = source.copy()
    elif isinstance(source, np.ndarray):
        image = Image.fromarray(source)
    elif isinstance(source, ZipImage):
        image = open_image(source.read_bytes(), max_pixels)
    else:
        image = open_image(source if isinstance(source, bytes) else check_readable(source), max_pixels)
    try:
        yield image
    finally:
        image.close()  # Pillow's own block only closes the file


def _content(path: Path) -> bytes:
    """Return the bytes of a file, in a single read: faster than Pillow, which reads small files in pieces."""
    descriptor = os.open(path, _READ)
    try:
        about = os.fstat(descriptor)
        if not stat.S_ISREG(about.st_mode):
            check_readable(path)  # raises
        content = os.read(descriptor, about.st_size)
        while len(content) < about.st_size and (more := os.read(descriptor, about.st_size - len(content))):
            content += more
        return content
    finally:
        os.close(descriptor)


def _square(image: Image.Image, size: int, crop: float) -> Image.Image:
    """Return the middle of an image, ``crop`` times its shorter side wide, at ``size`` x ``size`` pixels."""
    side = min(image.size) * crop
    left, upper = (image.width - side) / 2, (image.height - side) / 2
    box = (left, upper, left + side, upper + side)
    if side == size and left.is_integer() and upper.is_integer():
        return image.crop(box)  # no resampling needed
    if image.height > image.width:  # Pillow 13 resizes tall images down first, and others across first
        above = max(0, int(upper - 2 * max(side / size, 1)))  # rows that the filter does not reach
        image = image.crop((0, above, image.width, image.height - above))
        box = (left, upper - above, left + side, upper - above + side)
    return image.resize((size, size), Image.Resampling.BICUBIC, box=box, reducing_gap=3.0)


def _reason(source: ImageSource, error: BaseException) -> str:
    if isinstance(error, FileFormatError):  # a FIFO, a device ...
        return str(error)
    if isinstance(source, Path) and not source.exists():
        return "there is no such file"
    if source == b"" or (isinstance(source, Path) and source.stat().st_size == 0):
        return "the file is empty"
    if isinstance(error, UnidentifiedImageError):
        name = source.path if isinstance(source, ZipImage) else source
        if isinstance(name, PurePath) and name.suffix.lower() in HEIF_SUFFIXES and not find_spec("pillow_heif"):
            return HEIF_HINT
        return "it is not an image, or its format is not supported"
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
