"""Tiny-ImageNet-200: 200 classes of ImageNet, 500 training and 50 validation images of 64 x 64 each, in files.

Under the data root, in the official layout; the validation images are the test part, since those of ``test`` have no
labels::

    tiny-imagenet-200/wnids.txt                            one WordNet id per line: the natural order of the classes
    tiny-imagenet-200/words.txt                            id, tab, names
    tiny-imagenet-200/train/<wnid>/images/*.JPEG
    tiny-imagenet-200/val/images/*.JPEG
    tiny-imagenet-200/val/val_annotations.txt              file, tab, id, tab, four corners

Its classes are ImageNet's: a backbone pretrained there has seen them.
"""

from __future__ import annotations

import tempfile
import zipfile
from collections import Counter
from pathlib import Path

import torch

from dsal.base.progress import OnProgress
from dsal.data.dataset import DATASETS, DataSet
from dsal.data.images.image_files import FileData, files_fingerprint
from dsal.data.images.listing import Listing
from dsal.data.sets.class_folders import list_classes
from dsal.data.sets.download import Archive, download_archive
from dsal.errors import FileFormatError, MissingDataError

NAME, FOLDER, SIZE = "tiny-imagenet", "tiny-imagenet-200", 64
ARCHIVE = Archive(
    url="http://cs231n.stanford.edu/tiny-imagenet-200.zip",
    sha256="6198c8ae015e2b3e007c7841da39ec069199b9aa3bfa943a462022fe5e43c821",
)


@DATASETS.register(NAME)
def load_tiny_imagenet(root: Path, download: bool = False, progress: OnProgress | None = None) -> DataSet:
    """Load Tiny-ImageNet; classes are numbered in the order of ``wnids.txt``, and images stay in their files.

    Raises:
        MissingDataError: a file or folder of the layout is missing; the message says which.
        FileFormatError: classes differ in their number of training images, or annotations and images do not match.
    """
    folder, archive = root / FOLDER, root / ARCHIVE.filename
    if not folder.is_dir():
        if not archive.is_file():
            if not download:
                raise MissingDataError(
                    f"{NAME} is not under {root}. Put the official archive there as {archive} (from {ARCHIVE.url}), "
                    f"or the unpacked folder as {folder}, or allow the download."
                )
            download_archive(ARCHIVE, archive, progress)
        _unpack(archive, folder)
    wnids = _wnids(folder / "wnids.txt")
    train, test = _train(folder / "train", wnids), _validation(folder / "val", wnids)
    return DataSet(NAME, train, test, _names(folder / "words.txt", wnids), files_fingerprint(train, test))


def _unpack(archive: Path, folder: Path) -> None:
    """Unpack the archive next to the folder, then rename it: the folder is complete or absent."""
    try:
        with tempfile.TemporaryDirectory(dir=folder.parent) as part, zipfile.ZipFile(archive) as file:
            file.extractall(part)
            if not (Path(part) / FOLDER).is_dir():
                raise FileFormatError(f"{archive} has no folder {FOLDER}: it is not the official archive")
            (Path(part) / FOLDER).rename(folder)
    except (zipfile.BadZipFile, EOFError) as error:
        raise FileFormatError(
            f"{archive} is truncated or corrupt ({error}); delete it and download it again"
        ) from error


def _lines(path: Path) -> list[str]:
    if not path.is_file():
        raise MissingDataError(f"{NAME} is not complete: expected the file {path}")
    return [line for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]


def _wnids(path: Path) -> dict[str, int]:
    """Return the number of each class."""
    wnids = [line.strip() for line in _lines(path)]
    repeated = [wnid for wnid, count in Counter(wnids).items() if count > 1]
    if repeated:
        raise FileFormatError(f"{path} lists {repeated[0]} more than once")
    return {wnid: number for number, wnid in enumerate(wnids)}


def _names(path: Path, wnids: dict[str, int]) -> tuple[str, ...]:
    """Return the first name of each class, followed by its id where two classes share it."""
    words = dict(line.split("\t", 1) for line in _lines(path) if "\t" in line)
    missing = [wnid for wnid in wnids if wnid not in words]
    if missing:
        raise FileFormatError(f"{path} has no name for {missing[0]}")
    first = {wnid: words[wnid].split(",")[0].strip() for wnid in wnids}
    count = Counter(first.values())
    return tuple(name if count[name] == 1 else f"{name} ({wnid})" for wnid, name in first.items())


def _train(folder: Path, wnids: dict[str, int]) -> FileData:
    missing = [wnid for wnid in wnids if not (folder / wnid).is_dir()]
    if missing:
        raise MissingDataError(f"{NAME} is not complete: expected the folder {folder / missing[0]}")
    listed = list_classes(folder)
    extra = sorted(set(listed.names) - wnids.keys())
    if extra:
        raise FileFormatError(f"{folder} has the folder {extra[0]}, which is not in wnids.txt")
    images = Counter(listed.labels)
    most = max(images.values())
    short = [wnid for wnid in wnids if images[wnid] < most]
    if short:
        raise FileFormatError(
            f"{folder / short[0]} has {images[short[0]]} images where another class has {most}: unpack it again"
        )
    return FileData(listed.paths, torch.tensor([wnids[wnid] for wnid in listed.labels]), size=SIZE)


def _validation(folder: Path, wnids: dict[str, int]) -> FileData:
    table = folder / "val_annotations.txt"
    labels: dict[str, int] = {}
    for number, line in enumerate(_lines(table), 1):
        name, _, rest = line.partition("\t")
        wnid = rest.partition("\t")[0]
        if wnid not in wnids:
            raise FileFormatError(
                f"{table}, line {number}: expected a file and a class of wnids.txt, got {line[:80]!r}"
            )
        labels[name] = wnids[wnid]
    images = folder / "images"
    if not images.is_dir():
        raise MissingDataError(f"{NAME} is not complete: expected the folder {images}")
    present = {path.name for path in images.iterdir() if not path.name.startswith(".")}
    absent, unlabelled = sorted(labels.keys() - present), sorted(present - labels.keys())
    if absent:
        raise MissingDataError(f"{table} labels {absent[0]}, which is not in {images}")
    if unlabelled:
        raise FileFormatError(f"{images / unlabelled[0]} has no label in {table}")
    return FileData(Listing(images, labels), torch.tensor(list(labels.values())), size=SIZE)
