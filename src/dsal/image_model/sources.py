"""Normalise the images that users pass, with or without labels, and compute keys that identify them.

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

from dsal.data.images.decode import ImageSource, checked_source
from dsal.data.images.labelled_files import LabelledFiles, ZipImage, find_images, read_files
from dsal.errors import FileFormatError, InputError
from dsal.files.atomic import StrPath, check_readable

Images: TypeAlias = "StrPath | ImageSource | Iterable[StrPath | ImageSource] | NDArray[np.uint8]"
Labelled: TypeAlias = (
    "StrPath | LabelledFiles[Path] | LabelledFiles[ZipImage] | "
    "tuple[Iterable[StrPath | ImageSource] | NDArray[np.uint8], Sequence[str]]"
)
KEY_BYTES = 16
RESERVED_NAMES = ("unknown", "none of these")  # what commands and the page call images of no known class


@dataclass(frozen=True)
class LabelledImages:
    """Images with their labels, none of them opened yet."""

    images: tuple[ImageSource, ...]
    labels: tuple[str, ...]

    def take(self, rows: Iterable[int]) -> LabelledImages:
        """Return the images at ``rows``."""
        chosen = list(rows)
        return LabelledImages(tuple(self.images[row] for row in chosen), tuple(self.labels[row] for row in chosen))


def labelled_images(source: Labelled) -> LabelledImages:
    """List images of ``FOLDER/<class>/*``, its zip, a CSV of paths and labels, LabelledFiles, or (images, labels)."""
    if isinstance(source, LabelledFiles):
        return LabelledImages(source.paths, source.labels)
    if isinstance(source, (str, PathLike)):
        files = read_files(Path(source))
        return LabelledImages(files.paths, files.labels)
    if not isinstance(source, tuple) or len(source) != 2 or any(isinstance(part, (str, bytes)) for part in source):
        raise InputError("labelled images must be a folder, a zip, a CSV, or a tuple (images, labels)")
    images, labels = tuple(map(checked_source, source[0])), tuple(map(str, source[1]))
    if len(images) != len(labels):
        raise InputError(f"expected one label for each image, got {len(images)} images and {len(labels)} labels")
    if not images:
        raise InputError("there are no images to learn from")
    return LabelledImages(images, labels)


def unlabelled_images(images: Images) -> tuple[ImageSource, ...]:
    """Return the images as a tuple; folders are replaced by all images below them."""
    single = isinstance(images, (str, PathLike, bytes, Image.Image)) or (
        isinstance(images, np.ndarray) and images.ndim < 4 and images.dtype.kind not in "OU"  # not an array of paths
    )
    found: list[ImageSource] = []
    for item in [images] if single else images:  # type: ignore[union-attr]
        if isinstance(item, (str, PathLike)):
            found += find_images([Path(item)])
        else:
            found.append(checked_source(item))
    return tuple(found)


def content_keys(images: Sequence[ImageSource]) -> list[bytes | None]:
    """Return the :func:`content_key` of each image; None for a file that cannot be read."""

    def key(image: ImageSource) -> bytes | None:
        try:
            return content_key(file_content(image))
        except (OSError, FileFormatError):
            return None

    with ThreadPoolExecutor(cpu_count()) as pool:
        return list(pool.map(key, images))


def file_content(image: ImageSource) -> ImageSource:
    """Return the bytes of an image file, read once, or the image itself if it is not a file.

    Raises:
        FileFormatError: the file cannot be read; the message names it.
    """
    if isinstance(image, ZipImage):
        return image.read_bytes()
    if not isinstance(image, Path):
        return image
    try:
        return check_readable(image).read_bytes()
    except OSError as error:
        reason = "there is no such file" if isinstance(error, FileNotFoundError) else error.strerror or str(error)
        raise FileFormatError(f"cannot read the image {image}: {reason}") from error
    except FileFormatError as error:  # a FIFO, a device ...
        raise FileFormatError(f"cannot read the image {image}: {error}") from error


def content_key(content: ImageSource) -> bytes:
    """Return a hash of the bytes of an image file, or of the pixels of another image."""
    if not isinstance(content, bytes):
        pixels = np.ascontiguousarray(content)
        content = f"{pixels.shape} {pixels.dtype}".encode() + pixels.tobytes()
    return hashlib.sha256(content).digest()[:KEY_BYTES]


def check_class_name(name: str) -> str:
    """Return a class name; raise InputError for one that is blank, or that predictions use for unknown images.

    >>> check_class_name("Unknown")
    Traceback (most recent call last):
        ...
    dsal.errors.InputError: 'Unknown' cannot be the name of a class: it is what images of no known class are called
    """
    if not name.strip():
        raise InputError(f"a class name must not be empty or blank, got {name!r}")
    if name.strip().casefold() in RESERVED_NAMES:
        raise InputError(f"{name!r} cannot be the name of a class: it is what images of no known class are called")
    return name


def describe(image: object) -> str:
    """Return the name of an image for a message."""
    return str(image) if isinstance(image, Path | ZipImage) else "an image"


def listed(labels: Sequence[str]) -> str:
    """Join the first class names for a message."""
    return ", ".join(labels[:5]) + (f" and {len(labels) - 5} more" if len(labels) > 5 else "")


def plural(number: int, noun: str) -> str:
    """Return a number and its noun for a message.

    >>> plural(1, "image"), plural(2, "class")
    ('1 image', '2 classes')
    """
    return f"{number} {noun}{'' if number == 1 else 'es' if noun.endswith('s') else 's'}"
