"""What users pass as images, with or without labels, brought to one form; and what identifies an image.

An image is a path, the bytes of an image file, a Pillow image, or pixels: a uint8 array (h, w), (h, w, 3) or (h, w, 4).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from os import PathLike, cpu_count
from pathlib import Path
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from dsal.data.decode import ImageSource, checked_source
from dsal.data.folder import ImageFiles, find_images, read_files
from dsal.errors import FileFormatError, InputError
from dsal.store import StrPath, check_readable

Images: TypeAlias = "StrPath | ImageSource | Iterable[StrPath | ImageSource] | NDArray[np.uint8]"
Labelled: TypeAlias = "StrPath | ImageFiles | tuple[Iterable[StrPath | ImageSource] | NDArray[np.uint8], Sequence[str]]"
KEY_BYTES = 16


@dataclass(frozen=True)
class LabelledImages:
    """Images with their labels, none of them opened yet."""

    images: tuple[ImageSource, ...]
    labels: tuple[str, ...]

    def take(self, rows: Iterable[int]) -> LabelledImages:
        """Some of them."""
        chosen = list(rows)
        return LabelledImages(tuple(self.images[row] for row in chosen), tuple(self.labels[row] for row in chosen))


def labelled_images(source: Labelled) -> LabelledImages:
    """Images of ``FOLDER/<class>/*``, of a CSV of path and label, of files with labels, or of (images, labels)."""
    if isinstance(source, tuple):
        if len(source) != 2 or isinstance(source[1], str):
            raise InputError("labelled images are a folder, a CSV, or a pair: images, and one label for each of them")
        images, labels = tuple(map(checked_source, source[0])), tuple(map(str, source[1]))
        if len(images) != len(labels):
            raise InputError(f"expected one label for each image, got {len(images)} images and {len(labels)} labels")
        if not images:
            raise InputError("there are no images to learn from")
        return LabelledImages(images, labels)
    files = source if isinstance(source, ImageFiles) else read_files(Path(source))
    return LabelledImages(files.paths, files.labels)


def unlabelled_images(images: Images) -> tuple[ImageSource, ...]:
    """Images as given; for a folder, all images below it."""
    single = isinstance(images, (str, PathLike, bytes, Image.Image)) or (
        isinstance(images, np.ndarray) and images.ndim < 4
    )
    found: list[ImageSource] = []
    for item in [images] if single else images:  # type: ignore[union-attr]
        if isinstance(item, (str, PathLike)):
            found += find_images([Path(item)])
        else:
            found.append(checked_source(item))
    return tuple(found)


def content_keys(images: Sequence[ImageSource]) -> list[bytes | None]:
    """What identifies each image: a hash of the file's bytes, or of the pixels; None for a file that cannot be read."""
    with ThreadPoolExecutor(cpu_count()) as pool:
        return list(pool.map(_key, images))


def _key(image: ImageSource) -> bytes | None:
    if isinstance(image, Path):
        try:
            content = check_readable(image).read_bytes()
        except (OSError, FileFormatError):
            return None
    elif isinstance(image, bytes):
        content = image
    else:
        pixels = np.ascontiguousarray(image)
        content = f"{pixels.shape} {pixels.dtype}".encode() + pixels.tobytes()
    return hashlib.sha256(content).digest()[:KEY_BYTES]
