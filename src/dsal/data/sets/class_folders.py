"""Data sets of images in class folders, listed but not opened: ImageNet's training images, and users' own folders.

FOLDER/<class>/*.jpg                                    a fifth of each class becomes the test part
FOLDER/train/<class>/*.jpg, FOLDER/test/<class>/*.jpg   used as they are; ``val`` also works as ``test``
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath

import numpy as np
import torch
from numpy.typing import NDArray

from dsal.data.dataset import DataSet
from dsal.data.images.image_files import FileData, Listing, files_fingerprint
from dsal.data.images.labelled_files import image_suffixes
from dsal.errors import InputError

TEST_PARTS = ("test", "val")
TEST_FRACTION = 0.2


@dataclass(frozen=True, eq=False)
class ListedImages:
    """Image files and the class of each, as an index into ``names``."""

    paths: Listing
    numbers: NDArray[np.int64]
    names: tuple[str, ...]

    @property
    def labels(self) -> list[str]:
        """The class of each file."""
        return [self.names[number] for number in self.numbers]


def list_classes(folder: Path, classes: Sequence[str] | None = None) -> ListedImages:
    """List all images below each class folder of ``folder``, sorted; hidden files and folders are ignored.

    Args:
        folder: contains one folder per class.
        classes: those to keep; all by default.

    Raises:
        InputError: there are no class folders, or one of them has no image.
    """
    present = sorted(entry.name for entry in os.scandir(folder) if entry.is_dir() and not entry.name.startswith("."))
    names = present if classes is None else sorted(set(classes) & set(present))
    if not present:
        raise InputError(f"{folder} has no class folders: put the images of each class in a folder of its own")
    suffixes, counts = image_suffixes(), dict.fromkeys(names, 0)

    def found() -> Iterator[str]:
        for name in names:
            below = sorted(_below(str(folder / name), (name,), suffixes))
            counts[name] = len(below)
            yield from map("/".join, below)

    listing = Listing(folder, found())
    empty = [name for name, count in counts.items() if not count]
    if empty:
        raise InputError(f"{folder} has class folders without any image: {', '.join(empty[:10])}")
    numbers = np.repeat(np.arange(len(names)), list(counts.values()))
    return ListedImages(listing, numbers, tuple(names))


def _below(folder: str, parts: tuple[str, ...], suffixes: frozenset[str]) -> Iterator[tuple[str, ...]]:
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.startswith("."):
                continue
            if entry.is_dir():
                yield from _below(entry.path, (*parts, entry.name), suffixes)
            elif PurePath(entry.name).suffix.lower() in suffixes:
                yield (*parts, entry.name)


def load_class_folders(folder: Path) -> DataSet:
    """Load a folder of images as a data set named after it; see the module docstring for the layouts.

    Raises:
        InputError: there are no class folders, one has no image, or the parts do not have the same classes.
    """
    name = folder.resolve().name
    part = next((part for part in TEST_PARTS if (folder / part).is_dir()), None)
    if part is None or not (folder / "train").is_dir():
        listed = list_classes(folder)
        test = _every_fifth(listed.numbers)
        both = FileData(listed.paths, torch.from_numpy(listed.numbers))
        train, held = (both.take(torch.from_numpy(np.flatnonzero(rows))) for rows in (~test, test))
        return DataSet(name, train, held, listed.names, files_fingerprint(train, held))
    parts = list_classes(folder / "train"), list_classes(folder / part)
    names = parts[0].names
    if names != parts[1].names:
        differing = sorted(set(names) ^ set(parts[1].names))[0]
        raise InputError(
            f"{folder / 'train'} and {folder / part} must have the same classes; {differing} is in only one"
        )
    train, held = (FileData(listed.paths, torch.from_numpy(listed.numbers)) for listed in parts)
    return DataSet(name, train, held, names, files_fingerprint(train, held))


def _every_fifth(numbers: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return a mask of the test images: a random but fixed fraction of each class, at least one image."""
    chosen, random = np.zeros(len(numbers), dtype=bool), np.random.RandomState(0)
    for number in np.unique(numbers):
        rows = random.permutation(np.flatnonzero(numbers == number))
        if len(rows) < 2:
            raise InputError("every class needs two images or more: one to train on and one to test with")
        chosen[rows[: max(1, round(TEST_FRACTION * len(rows)))]] = True
    return chosen
