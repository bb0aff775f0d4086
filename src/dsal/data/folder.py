"""Labelled image files: a folder with one folder for each class, or a CSV of path and label."""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path

from dsal.errors import InputError, MissingDataError
from dsal.store import check_readable

SUFFIXES = frozenset(
    {".avif", ".bmp", ".gif", ".ico", ".jfif", ".jp2", ".jpe", ".jpeg", ".jpg", ".pbm", ".pgm", ".png"}
    | {".pnm", ".ppm", ".tga", ".tif", ".tiff", ".webp"}
)
"""How the names of image files end, in small letters."""

HEIF_SUFFIXES = frozenset({".heic", ".heif"})
"""Of files that are images only where the package ``pillow-heif`` is installed."""

LOOSE = "images outside the class folders"


@dataclass(frozen=True)
class ImageFiles:
    """Image files with their labels, none of them opened yet.

    Attributes:
        paths: the files.
        labels: one for each.
        passed: how many other files were passed over, by kind: the end of their names, or :data:`LOOSE`.
    """

    paths: tuple[Path, ...]
    labels: tuple[str, ...]
    passed: dict[str, int] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.paths)

    def counts(self) -> dict[str, int]:
        """Number of files of each class, classes sorted."""
        return dict(sorted(Counter(self.labels).items()))


def read_files(source: Path) -> ImageFiles:
    """Labelled files of ``FOLDER/<class>/...`` or of a CSV: see :func:`read_folder` and :func:`read_csv`."""
    source = Path(source)
    if not source.exists():
        raise MissingDataError(f"there is no {source}: expected a folder with one folder of images for each class")
    return read_folder(source) if source.is_dir() else read_csv(source)


def read_folder(folder: Path) -> ImageFiles:
    """All images below each folder of ``folder``, which is the name of their class, in sorted order.

    What is hidden (``.git``, ``._photo.jpg``) is ignored. What does not end like an image, and images beside the class
    folders, are passed over and counted.

    Raises:
        InputError: there are no class folders, or one of them has no image.
    """
    classes = sorted(entry for entry in folder.iterdir() if entry.is_dir() and not entry.name.startswith("."))
    if not classes:
        loose = f"{len(images_below(folder))} images but " if images_below(folder) else ""
        raise InputError(f"{folder} has {loose}no class folders: put the images of each class in a folder of its own")
    found = {entry.name: images_below(entry) for entry in classes}
    empty = [name for name, paths in found.items() if not paths]
    passed = _passed_over(folder)
    if empty:
        raise InputError(
            f"{folder} has class folders without any image: {', '.join(empty)}"
            + (f" (it has {passed_over_text(passed)})" if passed else "")
        )
    rows = [(path, name) for name, paths in found.items() for path in paths]
    return ImageFiles(tuple(path for path, _ in rows), tuple(name for _, name in rows), passed)


def passed_over_text(passed: dict[str, int]) -> str:
    """What was passed over, in words."""
    parts = [f"{count} {kind}" for kind, count in passed.items()]
    hint = "; pip install pillow-heif to read HEIC" if HEIF_SUFFIXES & passed.keys() else ""
    return ", ".join(parts) + hint


def read_csv(table: Path) -> ImageFiles:
    """Images of a CSV whose first line names its columns, ``path`` and ``label`` among them.

    Paths are relative to the CSV's folder unless absolute. Whether they are there is found out when they are opened.

    Raises:
        InputError: a column is missing, a line has no path or no label, or there are no lines.
    """
    paths, labels = [], []
    try:
        with check_readable(table).open(newline="", encoding="utf-8-sig") as file:
            reader = csv.DictReader(file)
            if not {"path", "label"} <= set(reader.fieldnames or ()):
                got = reader.fieldnames or "nothing"
                raise InputError(f"{table}: the first line must name the columns path and label; got {got}")
            for row in reader:
                path, label = (row["path"] or "").strip(), (row["label"] or "").strip()
                if not path or not label:
                    raise InputError(f"{table}, line {reader.line_num}: expected a path and a label, got {row}")
                paths.append(table.parent / path)
                labels.append(label)
    except (UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"{table} is neither a folder nor a CSV of path and label: {error}") from error
    if not paths:
        raise InputError(f"{table} lists no images")
    return ImageFiles(tuple(paths), tuple(labels))


def find_images(sources: Iterable[Path]) -> tuple[Path, ...]:
    """Files as given, and for a folder all images below it.

    Raises:
        InputError: something given is not there, or is a folder without images.
    """
    found: list[Path] = []
    for source in map(Path, sources):
        if not source.exists():
            raise InputError(f"there is no image {source}")
        paths = images_below(source) if source.is_dir() else [source]
        if not paths:
            raise InputError(f"{source} holds no images")
        found += paths
    return tuple(found)


def images_below(folder: Path) -> list[Path]:
    """Paths of all images in a folder and its folders, sorted."""
    suffixes = image_suffixes()
    return sorted(path for path in _files_below(folder) if path.suffix.lower() in suffixes)


def image_suffixes() -> frozenset[str]:
    """How the names of image files end, here and now."""
    return SUFFIXES | HEIF_SUFFIXES if find_spec("pillow_heif") else SUFFIXES


def _files_below(folder: Path) -> Iterator[Path]:
    for path in folder.rglob("*"):
        if not any(part.startswith(".") for part in path.relative_to(folder).parts) and path.is_file():
            yield path


def _passed_over(folder: Path) -> dict[str, int]:
    """Files of a folder of class folders that are not read, by kind, the most frequent first."""
    suffixes = image_suffixes()
    kinds = Counter[str]()
    for path in _files_below(folder):
        suffix = path.suffix.lower()
        if suffix not in suffixes:
            kinds[suffix or "files without a suffix"] += 1
        elif path.parent == folder:
            kinds[LOOSE] += 1
    return dict(kinds.most_common())
