"""ImageNet-1k, ImageNet-100 and Tiny-ImageNet, in their usual layouts; images stay in files until they are needed.

**ImageNet-1k**: ``imagenet`` under the data root. **ImageNet-100**: ``imagenet100`` with only these classes, or
``imagenet`` and their wnids in ``imagenet100.txt``, or ``imagenet`` alone, which means the field's choice of seed 1993.
Inside, training images are ``train/<wnid>/*.JPEG``; validation images are ``val/<wnid>/*.JPEG``, or the official flat
``val/*.JPEG`` with label files beside it: ``ILSVRC2012_validation_ground_truth.txt`` and ``meta.mat`` of the kit for
developers, or ``LOC_val_solution.csv``.

**Tiny-ImageNet-200**: 200 classes of ImageNet, so that a backbone pretrained there has seen them; 500 training and 50
validation images of 64 x 64 each. The validation images are the test part, since those of ``test`` have no labels::

    tiny-imagenet-200/wnids.txt                            one WordNet id per line: the natural order of the classes
    tiny-imagenet-200/words.txt                            id, tab, names
    tiny-imagenet-200/train/<wnid>/images/*.JPEG
    tiny-imagenet-200/val/images/*.JPEG
    tiny-imagenet-200/val/val_annotations.txt              file, tab, id, tab, four corners
"""

from __future__ import annotations

import csv
import tempfile
import zipfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch

from dsal.base.progress import OnProgress
from dsal.base.registry import check_name
from dsal.data.dataset import DATASETS, Archive, DataSet, find_archive
from dsal.data.images.image_files import FileData, Listing, files_fingerprint
from dsal.data.images.labelled_files import images_below
from dsal.data.scenario import class_order
from dsal.data.sets.class_folders import ListedImages, list_classes
from dsal.errors import FileFormatError, InputError, MissingDataError

PARTS = ("train", "val")
FULL, HUNDRED = "imagenet", "imagenet100"
GROUND_TRUTH, META, SOLUTION = "ILSVRC2012_validation_ground_truth.txt", "meta.mat", "LOC_val_solution.csv"


@DATASETS.register(FULL)
def load_imagenet(root: Path, download: bool = False, progress: OnProgress | None = None) -> DataSet:
    """Load ImageNet-1k: every class of ``root/imagenet``, labelled in wnid order. It cannot be downloaded."""
    return _data_set(FULL, root / FULL, None)


@DATASETS.register(HUNDRED)
def load_imagenet100(root: Path, download: bool = False, progress: OnProgress | None = None) -> DataSet:
    """Load ImageNet-100: ``root/imagenet100``, else the classes of ``root/imagenet`` chosen by a list or seed 1993."""
    if (root / HUNDRED).is_dir():
        return _data_set(HUNDRED, root / HUNDRED, None)
    folder, listed = root / FULL, root / f"{HUNDRED}.txt"
    if listed.is_file():
        return _data_set(HUNDRED, folder, tuple(listed.read_text(encoding="utf-8").split()))
    _expect_folder(folder / "train")
    wnids = [entry.name for entry in (folder / "train").iterdir() if entry.is_dir() and entry.name[0] != "."]
    return _data_set(HUNDRED, folder, imagenet100_classes(wnids))


def _data_set(name: str, folder: Path, classes: Sequence[str] | None) -> DataSet:
    train, val = (imagenet_files(folder, part, classes) for part in PARTS)
    number = {wnid: label for label, wnid in enumerate(train.names)}
    unknown = sorted(set(val.names) - set(train.names))
    if unknown:
        raise InputError(f"{folder / 'val'} has images of classes that are not in {folder / 'train'}: {unknown[0]}")
    renumbered = np.array([number[wnid] for wnid in val.names])[val.numbers]
    parts = FileData(train.paths, torch.from_numpy(train.numbers)), FileData(val.paths, torch.from_numpy(renumbered))
    return DataSet(name, *parts, train.names, files_fingerprint(*parts))


def imagenet_files(root: Path, part: str, classes: Sequence[str] | None = None) -> ListedImages:
    """List the files of one part, labelled with their WordNet ids (wnids).

    Args:
        root: the folder that holds ``train`` and ``val``.
        part: ``"train"`` or ``"val"``.
        classes: wnids to keep; all by default.

    Raises:
        MissingDataError: a folder or label file is missing; the message says which.
        InputError: a class of ``classes`` has no images.
    """
    check_name("part of ImageNet", part, PARTS)
    folder = root / part
    _expect_folder(folder)
    nested = any(entry.is_dir() for entry in folder.iterdir())
    files = list_classes(folder, classes) if nested or part == "train" else _flat(root, folder, classes)
    missing = sorted(set(classes or ()) - set(files.names))
    if missing:
        raise InputError(f"{folder} has no images of {', '.join(missing[:10])}")
    return files


def imagenet100_classes(wnids: Sequence[str]) -> tuple[str, ...]:
    """Return the field's usual hundred: the first of all thousand sorted wnids, permuted with NumPy's seed 1993."""
    names = sorted(wnids)
    if len(names) != 1000 or len(set(names)) != 1000:
        raise InputError(f"ImageNet-100 is drawn from the 1000 classes of ImageNet, got {len(set(names))}")
    return tuple(names[position] for position in class_order("1993", 1000)[:100])


def _expect_folder(folder: Path, name: str = "ImageNet") -> None:
    if not folder.is_dir():
        raise MissingDataError(f"{name} is not complete: expected the folder {folder}")


def _flat(root: Path, folder: Path, classes: Sequence[str] | None) -> ListedImages:
    """List the validation images of one flat folder, labelled by a file beside it."""
    paths = images_below(folder)
    if (root / SOLUTION).is_file():
        labels = _solution(root / SOLUTION)
    elif (root / GROUND_TRUTH).is_file() and (root / META).is_file():
        labels = _ground_truth(root / GROUND_TRUTH, root / META, paths)
    else:
        raise MissingDataError(
            f"the images of {root / 'val'} have no labels: put {GROUND_TRUTH} and {META}, or {SOLUTION}, into {root}"
        )
    unlabelled = [path.name for path in paths if path.stem not in labels]
    if unlabelled:
        raise FileFormatError(f"the label file of {root / 'val'} has no label for {unlabelled[0]}")
    kept = [path for path in paths if classes is None or labels[path.stem] in set(classes)]
    names = sorted({labels[path.stem] for path in kept})
    number = {wnid: at for at, wnid in enumerate(names)}
    numbers = np.array([number[labels[path.stem]] for path in kept], dtype=np.int64)
    return ListedImages(Listing(folder, (path.relative_to(folder).as_posix() for path in kept)), numbers, tuple(names))


def _solution(table: Path) -> dict[str, str]:
    """Read ``ImageId,PredictionString``: name of the image; wnid and corners of each box."""
    with table.open(newline="", encoding="utf-8") as file:
        try:
            return {row["ImageId"]: row["PredictionString"].split()[0] for row in csv.DictReader(file)}
        except (KeyError, IndexError, AttributeError) as error:
            raise FileFormatError(f"{table} is not the label file of ImageNet's validation images") from error


def _ground_truth(truth: Path, meta: Path, paths: list[Path]) -> dict[str, str]:
    """Read one number per line, in the order of the images' names; ``meta.mat`` maps numbers to wnids."""
    from scipy.io import loadmat

    try:
        synsets = loadmat(meta, squeeze_me=True)["synsets"]
        names = dict(zip(synsets["ILSVRC2012_ID"].astype(int).tolist(), synsets["WNID"].tolist(), strict=True))
        numbers = np.loadtxt(truth, dtype=int, ndmin=1).tolist()
        wnids = [str(names[number]) for number in numbers]
    except (KeyError, ValueError, IndexError, TypeError) as error:
        raise FileFormatError(f"{truth} or {meta} is not the file of ImageNet's development kit: {error}") from error
    if len(wnids) != len(paths):
        raise FileFormatError(f"{truth} labels {len(wnids)} images, but there are {len(paths)}")
    return {path.stem: wnid for path, wnid in zip(sorted(paths), wnids, strict=True)}


TINY, TINY_FOLDER, TINY_SIZE = "tiny-imagenet", "tiny-imagenet-200", 64
TINY_ARCHIVE = Archive(
    url="http://cs231n.stanford.edu/tiny-imagenet-200.zip",
    sha256="6198c8ae015e2b3e007c7841da39ec069199b9aa3bfa943a462022fe5e43c821",
)


@DATASETS.register(TINY)
def load_tiny_imagenet(root: Path, download: bool = False, progress: OnProgress | None = None) -> DataSet:
    """Load Tiny-ImageNet; classes are numbered in the order of ``wnids.txt``, and images stay in their files.

    Raises:
        MissingDataError: a file or folder of the layout is missing; the message says which.
        FileFormatError: classes differ in their number of training images, or annotations and images do not match.
    """
    folder = root / TINY_FOLDER
    archive = find_archive(TINY, TINY_ARCHIVE, folder, download, progress)
    if not folder.is_dir():
        _unpack(archive, folder)
    wnids = _wnids(folder / "wnids.txt")
    train, test = _tiny_train(folder / "train", wnids), _tiny_validation(folder / "val", wnids)
    return DataSet(TINY, train, test, _tiny_names(folder / "words.txt", wnids), files_fingerprint(train, test))


def _unpack(archive: Path, folder: Path) -> None:
    """Unpack the archive next to the folder, then rename it: the folder is complete or absent."""
    try:
        with tempfile.TemporaryDirectory(dir=folder.parent) as part, zipfile.ZipFile(archive) as file:
            file.extractall(part)
            if not (Path(part) / TINY_FOLDER).is_dir():
                raise FileFormatError(f"{archive} has no folder {TINY_FOLDER}: it is not the official archive")
            (Path(part) / TINY_FOLDER).rename(folder)
    except (zipfile.BadZipFile, EOFError) as error:
        raise FileFormatError(
            f"{archive} is truncated or corrupt ({error}); delete it and download it again"
        ) from error


def _lines(path: Path) -> list[str]:
    if not path.is_file():
        raise MissingDataError(f"{TINY} is not complete: expected the file {path}")
    return [line for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]


def _wnids(path: Path) -> dict[str, int]:
    """Return the number of each class."""
    wnids = [line.strip() for line in _lines(path)]
    repeated = [wnid for wnid, count in Counter(wnids).items() if count > 1]
    if repeated:
        raise FileFormatError(f"{path} lists {repeated[0]} more than once")
    return {wnid: number for number, wnid in enumerate(wnids)}


def _tiny_names(path: Path, wnids: dict[str, int]) -> tuple[str, ...]:
    """Return the first name of each class, followed by its id where two classes share it."""
    words = dict(line.split("\t", 1) for line in _lines(path) if "\t" in line)
    missing = [wnid for wnid in wnids if wnid not in words]
    if missing:
        raise FileFormatError(f"{path} has no name for {missing[0]}")
    first = {wnid: words[wnid].split(",")[0].strip() for wnid in wnids}
    count = Counter(first.values())
    return tuple(name if count[name] == 1 else f"{name} ({wnid})" for wnid, name in first.items())


def _tiny_train(folder: Path, wnids: dict[str, int]) -> FileData:
    for wnid in wnids:
        _expect_folder(folder / wnid, TINY)
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
    return FileData(listed.paths, torch.tensor([wnids[wnid] for wnid in listed.labels]), size=TINY_SIZE)


def _tiny_validation(folder: Path, wnids: dict[str, int]) -> FileData:
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
    _expect_folder(images, TINY)
    present = {path.name for path in images.iterdir() if not path.name.startswith(".")}
    absent, unlabelled = sorted(labels.keys() - present), sorted(present - labels.keys())
    if absent:
        raise MissingDataError(f"{table} labels {absent[0]}, which is not in {images}")
    if unlabelled:
        raise FileFormatError(f"{images / unlabelled[0]} has no label in {table}")
    return FileData(Listing(images, labels), torch.tensor(list(labels.values())), size=TINY_SIZE)
