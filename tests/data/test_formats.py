"""Hostile image files: only known formats are opened, sizes are known before pixels, and memory is freed at once."""

import gc
import io
import os
import struct
import subprocess
import sys
import zlib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageFile

from dsal.data.images import decode, formats
from dsal.data.images.decode import decode_image
from dsal.errors import FileFormatError


def saved(image: Image.Image, kind: str, **options: object) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)
    return buffer.getvalue()


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF", "AVIF", "PPM", "MPO"])
def test_formats_that_are_read(kind: str) -> None:
    if kind not in Image.SAVE:
        Image.init()
    if kind not in Image.SAVE:
        pytest.skip(f"Pillow was built without {kind}")
    assert decode_image(saved(Image.new("RGB", (40, 40), "red"), kind), 16)[0].min() > 200


@pytest.mark.parametrize("kind", ["EPS", "ICO", "ICNS", "PDF", "TGA", "DDS", "PCX", "SGI"])
def test_formats_that_are_not(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """PostScript would run Ghostscript, if it is installed; icons are decoded before their size is known."""
    Image.init()
    data = saved(Image.new("RGB", (64, 64)), kind)
    (tmp_path / "gs").write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\n")
    (tmp_path / "gs").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    (tmp_path / "x.jpg").write_bytes(data)
    for source in (data, tmp_path / "x.jpg"):
        with pytest.raises(FileFormatError, match="not an image, or its format is not supported"):
            decode_image(source, 16)
    assert not (tmp_path / "ran").exists()


def webp(chunk: bytes, content: bytes) -> bytes:
    body = b"WEBP" + chunk + len(content).to_bytes(4, "little") + content
    return b"RIFF" + len(body).to_bytes(4, "little") + body + bytes(64)


def tiff_with_a_tile_of(side: int) -> bytes:
    """An image of 16 x 16 pixels in a tile of another size."""
    tags = {256: 16, 257: 16, 258: 8, 259: 8, 262: 1, 277: 1, 322: side, 323: side, 324: 200, 325: 10}
    entries = b"".join(struct.pack("<HHII", tag, 4, 1, value) for tag, value in sorted(tags.items()))
    return b"II*\0" + struct.pack("<IH", 8, len(tags)) + entries + bytes(100) + zlib.compress(bytes(1000))


@pytest.mark.parametrize(
    "data",
    [
        webp(b"VP8X", bytes(4) + (16383).to_bytes(3, "little") * 2),
        webp(b"VP8L", b"/" + (16383 | 16383 << 14).to_bytes(4, "little")),
        webp(b"VP8 ", bytes(3) + b"\x9d\x01\x2a" + (16383).to_bytes(2, "little") * 2),
        tiff_with_a_tile_of(60_000),
    ],
)
def test_sizes_are_known_before_pixels_are_allocated(data: bytes) -> None:
    with pytest.raises(FileFormatError, match=r"it has \d+ x \d+ pixels; at most 1000000 are read"):
        decode_image(data, 16, max_pixels=10**6)


@pytest.mark.parametrize("mode", ["I;16", "I", "F", "RGBA", "LA", "P", "CMYK", "RGB"])
def test_a_conversion_in_strips_is_the_same(mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    if mode in ("I;16", "I", "F"):
        kind = {"I;16": np.uint16, "I": np.int32, "F": np.float32}[mode]
        image = Image.fromarray(rng.integers(0, 60_000, (50, 37)).astype(kind))
    else:
        image = Image.fromarray(rng.integers(0, 256, (50, 37, 4), dtype=np.uint8)).convert(mode)
    if mode == "P":
        image.info["transparency"] = 3
    whole = decode_image(image, 24)
    monkeypatch.setattr(formats, "_STRIP", 100)
    monkeypatch.setattr(decode, "_SMALL", 100)  # and one at a time
    assert np.array_equal(decode_image(image, 24), whole)


def test_nothing_is_kept_of_a_broken_image() -> None:
    """Without waiting for the garbage collector."""
    whole = saved(Image.fromarray(np.random.default_rng(0).integers(0, 256, (300, 300, 3), dtype=np.uint8)), "PNG")
    gc.collect()
    gc.disable()
    try:
        kept = []
        for source in (whole[:100_000], whole[:200], b"GIF89a" + bytes(20)):
            with pytest.raises(FileFormatError) as refused:
                decode_image(source, 16)
            kept.append(refused.value)
        del refused
        alive = [each for each in gc.get_objects() if isinstance(each, ImageFile.ImageFile)]
        loaded = [each for each in alive if isinstance(each._im, Image.core.ImagingCore)]
    finally:
        gc.enable()
    assert not loaded


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="measures with the resource module of Linux")
@pytest.mark.parametrize("mode", ["I;16", "RGBA"])
def test_memory_of_a_large_image_is_bounded(tmp_path: Path, mode: str) -> None:
    """Twelve bytes per pixel at most: sixteen-bit greys took thirty."""
    side = 4000
    image = Image.fromarray(np.zeros((side, side), np.uint16)) if mode == "I;16" else Image.new(mode, (side, side))
    image.save(tmp_path / "a.png", compress_level=1)
    script = """if True:
        import resource, sys
        from pathlib import Path
        from dsal.data.images.decode import decode_image
        decode_image(Path(sys.argv[2]), 224)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        decode_image(Path(sys.argv[1]), 224)
        print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
    """
    Image.new("RGBA", (300, 300)).save(tmp_path / "b.png")
    paths = [str(tmp_path / "a.png"), str(tmp_path / "b.png")]
    kilobytes = int(subprocess.run([sys.executable, "-c", script, *paths], capture_output=True, check=True).stdout)
    assert kilobytes * 1024 < 13 * side**2
