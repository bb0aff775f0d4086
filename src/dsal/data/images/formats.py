"""Which image formats are opened, and how large an image may be: known from the header, before anything is decoded.

Pillow would open any of fifty formats, among them PostScript, which it hands to Ghostscript, and icons, which it
decodes to find their size.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from importlib.util import find_spec
from io import BytesIO
from pathlib import Path

from PIL import Image

from dsal.errors import FileFormatError

FORMATS = ("JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF", "AVIF", "PPM")
"""Formats that are read, if Pillow was built with them; and HEIC, if ``pillow-heif`` is installed."""
MOST_PIXELS = 178_956_970  # where Pillow itself stops
_MODULES = {"JPEG": "Jpeg", "PNG": "Png", "WEBP": "WebP", "GIF": "Gif", "BMP": "Bmp", "TIFF": "Tiff", "AVIF": "Avif"}
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
