"""Image formats: which are opened, how large an image may be, and any mode to 8 bits per channel.

Format and size are known from the header, before anything is decoded. Modes are converted a few rows at a time, so that
memory stays within twice the image.

Pillow would open any of fifty formats, among them PostScript, which it hands to Ghostscript, and icons, which it
decodes to find their size.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from io import BytesIO
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from dsal.errors import FileFormatError

FORMATS = ("JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF", "AVIF", "PPM")
"""Formats that are read, if Pillow was built with them; and HEIC, if ``pillow-heif`` is installed."""
MOST_PIXELS = 178_956_970  # where Pillow itself stops
_MODULES = {"JPEG": "Jpeg", "PNG": "Png", "WEBP": "WebP", "GIF": "Gif", "BMP": "Bmp", "TIFF": "Tiff", "AVIF": "Avif"}
_STRIP = 2**20  # pixels that are converted at a time
_TILE_WIDTH, _TILE_LENGTH = 322, 323  # tags of TIFF


def open_image(source: bytes | Path, max_pixels: int | None = None) -> Image.Image:
    """Open the bytes of an image file, or a path, reading no more than the header.

    Raises:
        FileFormatError: it has more than ``max_pixels`` pixels.
        Exception: whatever Pillow raises for a file that is no image, or of another format.
    """
    most = MOST_PIXELS if max_pixels is None else max_pixels
    if isinstance(source, bytes):
        head = source[:32]
    else:
        with source.open("rb") as file:
            head = file.read(32)
    _check(*_webp_canvas(head), most)  # Pillow's decoder allocates it twice when it opens the file
    image = Image.open(BytesIO(source) if isinstance(source, bytes) else source, formats=_available())
    try:
        _check(*image.size, most)
        tags = getattr(image, "tag_v2", {})
        _check(int(tags.get(_TILE_WIDTH, 0)), int(tags.get(_TILE_LENGTH, 0)), most)  # may be larger than the image
    except BaseException:
        image.close()
        raise
    return image


def _check(width: int, height: int, most: int) -> None:
    if width * height > most:
        raise FileFormatError(f"it has {width} x {height} pixels; at most {most} are read")


def _webp_canvas(head: bytes) -> tuple[int, int]:
    """Return the width and height in the header of a WebP file; (0, 0) for any other file."""
    if head[:4] != b"RIFF" or head[8:12] != b"WEBP":
        return 0, 0
    if head[12:16] == b"VP8X":
        return 1 + int.from_bytes(head[24:27], "little"), 1 + int.from_bytes(head[27:30], "little")
    if head[12:16] == b"VP8L":
        bits = int.from_bytes(head[21:25], "little")
        return 1 + (bits & 0x3FFF), 1 + (bits >> 14 & 0x3FFF)
    return int.from_bytes(head[26:28], "little") & 0x3FFF, int.from_bytes(head[28:30], "little") & 0x3FFF


@cache
def _available() -> tuple[str, ...]:
    """Return the names of the formats that can be read."""
    Image.preinit()
    for name in _MODULES.values():
        if find_spec(f"PIL.{name}ImagePlugin"):
            import_module(f"PIL.{name}ImagePlugin")
    if find_spec("pillow_heif"):
        import_module("pillow_heif").register_heif_opener()
    return tuple(name for name in (*FORMATS, "HEIF") if name in Image.OPEN)


def eight_bits(image: Image.Image) -> Image.Image:
    """Return the image with 8 bits per channel and without transparency; EXIF data is kept.

    Beside the image itself, this takes at most four bytes per pixel.
    """
    if image.mode.startswith("I;16") or image.mode in ("I", "F"):
        return _like(image, "L", _grey_levels(image))
    if "A" in image.getbands() or "transparency" in image.info:
        return _like(image, "RGB", _on_white)
    image.load()
    return image


def _like(image: Image.Image, mode: str, convert: Callable[[Image.Image], Image.Image]) -> Image.Image:
    """Convert an image, a few rows at a time."""
    made = Image.new(mode, image.size)
    for rows in _strips(image):
        made.paste(convert(image.crop(rows)), rows)
    made.info["exif"] = image.info.get("exif", b"")
    return made


def _on_white(image: Image.Image) -> Image.Image:
    colours = image.convert("RGBA")
    white = Image.new("RGBA", colours.size, "white")
    white.alpha_composite(colours)
    return white.convert("RGB")


def _grey_levels(image: Image.Image) -> Callable[[Image.Image], Image.Image]:
    """Return a conversion of grey levels of 16 bits, or floating point in 0..1 or 0..255, to 8 bits."""
    highest = 0.0
    if image.mode in ("I", "F"):
        highest = float(max(np.nanmax(_values(image.crop(rows)), initial=0.0) for rows in _strips(image)))
    if image.mode == "F":
        top = 1.0 if highest <= 1.0 else 255.0
    else:
        top = 65535.0 if image.mode != "I" or highest > 255 else 255.0

    def convert(part: Image.Image) -> Image.Image:
        levels = np.nan_to_num(_values(part) * (255.0 / top)).clip(0, 255)
        return Image.fromarray(np.rint(levels).astype(np.uint8))

    return convert


def _values(image: Image.Image) -> NDArray[np.float64]:
    return np.asarray(image, dtype=np.float64)


def _strips(image: Image.Image) -> Iterator[tuple[int, int, int, int]]:
    """Yield boxes of whole rows that cover the image."""
    step = max(_STRIP // image.width, 1)
    for upper in range(0, image.height, step):
        yield 0, upper, image.width, min(upper + step, image.height)
