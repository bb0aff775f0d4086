"""Labelled image files: a folder with one folder for each class, a zip archive of it, or a CSV of path and label.

Images in an archive are read one at a time; nothing is unpacked, so no path inside it can do harm.
"""

from __future__ import annotations

import csv
import lzma
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path, PurePath, PurePosixPath
from typing import Generic, TypeVar
from zipfile import BadZipFile, ZipFile, ZipInfo

from dsal.errors import FileFormatError, InputError, MissingDataError
from dsal.files.atomic import check_readable

SUFFIXES = frozenset(
    {".avif", ".bmp", ".gif", ".jfif", ".jpe", ".jpeg", ".jpg", ".pbm", ".pgm", ".png", ".pnm", ".ppm"}
    | {".tif", ".tiff", ".webp"}
)
"""Suffixes of image files, in lower case."""

HEIF_SUFFIXES = frozenset({".heic", ".heif"})
"""Suffixes of image files that can be read only if the package ``pillow-heif`` is installed."""
HEIF_HINT = "pip install pillow-heif to read HEIC"

LOOSE = "images outside the class folders"
MOST_BYTES = 2**28  # of one file
MOST_TOTAL = 2**36  # of all files together; both are sizes after decompression
_DAMAGED = (BadZipFile, zlib.error, lzma.LZMAError, EOFError, NotImplementedError, RuntimeError, OSError, ValueError)


@dataclass(frozen=True, eq=False)
class ZipImage:
    """A file in an archive; reading is safe from several threads."""

    archive: ZipFile
    info: ZipInfo

    def __str__(self) -> str:
        return f"{self.archive.filename}/{self.info.filename}"

    @property
    def path(self) -> PurePosixPath:
        """Its name inside the archive."""
        return PurePosixPath(self.info.filename)

    def read_bytes(self) -> bytes:
        """Return the content.

        Raises:
            FileFormatError: the file is damaged, or larger than :data:`MOST_BYTES`.
        """
        if self.info.file_size > MOST_BYTES:
            raise FileFormatError(f"{self} has {self.info.file_size} bytes; an image may have at most {MOST_BYTES}")
        try:
            with self.archive.open(self.info) as file:
                return file.read(self.info.file_size)  # not more than declared, and its checksum is checked
        except _DAMAGED as error:
            raise FileFormatError(f"{self} is damaged: {error}") from error


File = TypeVar("File", Path, ZipImage)


@dataclass(frozen=True)
class LabelledFiles(Generic[File]):
    """Image files with their labels, none of them opened yet.

    Attributes:
        paths: the files, on disk or in an archive.
        labels: one for each.
        passed: number of other files that were passed over, by suffix or under :data:`LOOSE`.
    """

    paths: tuple[File, ...]
    labels: tuple[str, ...]
    passed: dict[str, int] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.paths)

    def counts(self) -> dict[str, int]:
        """Return the number of files of each class, classes sorted."""
        return dict(sorted(Counter(self.labels).items()))


def read_files(source: Path) -> LabelledFiles[Path] | LabelledFiles[ZipImage]:
    """List labelled files by :func:`read_folder`, :func:`read_zip` (``.zip``) or :func:`read_csv` (any other file)."""
    source = Path(source)
    if not source.exists():
        raise MissingDataError(
            f"no such folder or file: {source}. Expected a folder with one folder of images for each class,"
            " a .zip of one, or a CSV table"
        )
    if source.is_dir():
        return read_folder(source)
    return read_zip(source) if source.suffix.lower() == ".zip" else read_csv(source)


def read_folder(folder: Path) -> LabelledFiles[Path]:
    """List all images below each folder of ``folder``, sorted; the folder's name is their class.

    Hidden files and folders (``.git``, ``._photo.jpg``) are ignored. Files without the suffix of an image, and images
    outside the class folders, are passed over and counted.

    Raises:
        InputError: there are no class folders, or one of them has no image.
    """
    classes = [entry.name for entry in folder.iterdir() if entry.is_dir() and not _hidden(Path(entry.name))]
    files = [(path.relative_to(folder), path) for path in sorted(_files_below(folder))]
    return _by_folder(folder, classes, files)


def read_zip(archive: Path) -> LabelledFiles[ZipImage]:
    """List the images of a zip archive of class folders, as :func:`read_folder` would after unpacking.

    A single folder around all class folders is ignored. Nothing is unpacked: images are read one by one.

    Raises:
        InputError: there are no class folders, or one of them has no image.
        FileFormatError: see :func:`open_archive`.
    """
    suffixes = image_suffixes()
    members = [(member.path, member) for member in open_archive(archive) if not _hidden(member.path)]
    around = {path.parts[0] for path, _ in members}
    nested = any(len(path.parts) > 2 and path.suffix.lower() in suffixes for path, _ in members)
    if len(around) == 1 and nested:
        members = [(path.relative_to(*around), member) for path, member in members]
    classes = {path.parts[0] for path, _ in members if len(path.parts) > 1}
    return _by_folder(archive, classes, members)


def open_archive(path: Path) -> list[ZipImage]:
    """List all files of a zip archive, sorted by name.

    Raises:
        FileFormatError: the file is not a zip archive, is damaged or encrypted, contains a path that leads outside
            it, or unpacks to more than :data:`MOST_TOTAL` bytes.
    """
    try:
        archive = ZipFile(check_readable(path))
    except _DAMAGED as error:
        if isinstance(error, FileNotFoundError | FileFormatError):
            raise
        raise FileFormatError(f"{path} is not a zip archive or is damaged: {error}") from error
    members = [info for info in archive.infolist() if not info.is_dir()]
    for info in members:
        name = info.filename
        if info.flag_bits & 1:
            raise FileFormatError(f"{path} is encrypted: make an archive without a password")
        if name.startswith("/") or "\\" in name or ":" in name.split("/")[0] or ".." in name.split("/"):
            raise FileFormatError(f"{path} contains {name!r}, a path that leads outside the archive; nothing was read")
    total = sum(info.file_size for info in members)
    if total > MOST_TOTAL:
        raise FileFormatError(f"{path} unpacks to {total} bytes; at most {MOST_TOTAL} are read: split it")
    return sorted((ZipImage(archive, info) for info in members), key=lambda member: member.path)


def _by_folder(source: Path, classes: Iterable[str], files: Iterable[tuple[PurePath, File]]) -> LabelledFiles[File]:
    """Label files by the first folder of their path, which is relative to ``source``."""
    suffixes = image_suffixes()
    found: dict[str, list[File]] = {name: [] for name in sorted(classes)}
    passed = Counter[str]()
    for path, file in files:
        if path.suffix.lower() not in suffixes:
            passed[_kind(path)] += 1
        elif len(path.parts) == 1:
            passed[LOOSE] += 1
        else:
            found[path.parts[0]].append(file)
    counts = dict(sorted(passed.items(), key=lambda item: (-item[1], item[0] != LOOSE, item[0])))
    if not found:
        loose = f"{passed[LOOSE]} images but " if passed[LOOSE] else ""
        raise InputError(f"{source} has {loose}no class folders: put the images of each class in a folder of its own")
    empty = [name for name, some in found.items() if not some]
    if empty:
        raise InputError(
            f"{source} has class folders without any image: {', '.join(empty)}"
            + (f" (it has {passed_over_text(counts)})" if counts else "")
        )
    rows = [(file, name) for name, some in found.items() for file in some]
    return LabelledFiles(tuple(file for file, _ in rows), tuple(name for _, name in rows), counts)


def passed_over_text(passed: Mapping[str, int]) -> str:
    """Describe what was passed over, in words."""
    parts = [f"{count} {kind.replace('images', 'image') if count == 1 else kind}" for kind, count in passed.items()]
    hint = f"; {HEIF_HINT}" if HEIF_SUFFIXES & passed.keys() else ""
    return ", ".join(parts) + hint


def read_csv(table: Path) -> LabelledFiles[Path]:
    """List the images of a CSV whose first line names its columns, among them ``path`` and ``label``.

    Paths are relative to the CSV's folder unless absolute. They are not checked until they are opened.

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
    return LabelledFiles(tuple(paths), tuple(labels))


def find_images(sources: Iterable[Path], passed: Counter[str] | None = None) -> tuple[Path, ...]:
    """Return files as given, and all images below each folder; its other files are counted by kind in ``passed``.

    Raises:
        InputError: a source does not exist, or is a folder without images.
    """
    found: list[Path] = []
    for source in map(Path, sources):
        if not source.exists():
            raise InputError(f"no such image: {source}")
        if not source.is_dir():
            found.append(source)
            continue
        paths, suffixes = images_below(source), image_suffixes()
        others = Counter(_kind(path) for path in _files_below(source) if path.suffix.lower() not in suffixes)
        if not paths:
            raise InputError(f"{source} holds no images" + (f" (it has {passed_over_text(others)})" if others else ""))
        found += paths
        if passed is not None:
            passed.update(others)
    return tuple(found)


def images_below(folder: Path) -> list[Path]:
    """Return the paths of all images in a folder and its subfolders, sorted."""
    suffixes = image_suffixes()
    return sorted(path for path in _files_below(folder) if path.suffix.lower() in suffixes)


def image_suffixes() -> frozenset[str]:
    """Return the suffixes of image files that the installed packages can read."""
    return SUFFIXES | HEIF_SUFFIXES if find_spec("pillow_heif") else SUFFIXES


def _files_below(folder: Path) -> Iterator[Path]:
    for path in folder.rglob("*"):
        if not _hidden(path.relative_to(folder)) and path.is_file():
            yield path


def _kind(path: PurePath) -> str:
    """Return the name under which a file that is not an image is counted."""
    return path.suffix.lower() or "files without a suffix"


def _hidden(path: PurePath) -> bool:
    """Return whether a file or one of its folders is hidden, or added to archives by macOS."""
    return any(part.startswith(".") or part == "__MACOSX" for part in path.parts)
