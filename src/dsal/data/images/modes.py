"""Any mode of an image to 8 bits per channel, a few rows at a time, so that memory stays within twice the image."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray
from PIL import Image

_STRIP = 2**20  # pixels that are converted at a time


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
