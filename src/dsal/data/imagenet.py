"""ImageNet-1k and ImageNet-100, in the layouts they come in; images stay in their files until they are wanted.

Under the data root: ``imagenet``, and for ImageNet-100 either ``imagenet100`` with these classes alone, or their wnids
in ``imagenet100.txt``, or nothing more, which means the field's choice of seed 1993. Inside, training images are
``train/<wnid>/*.JPEG``; those of validation ``val/<wnid>/*.JPEG``, or the official flat ``val/*.JPEG`` with either
label file beside it: ``ILSVRC2012_validation_ground_truth.txt`` and ``meta.mat`` of the development kit, or
``LOC_val_solution.csv``.
"""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch

from dsal.data.dataset import DATASETS, DataSet
from dsal.data.files import FileData, files_fingerprint
from dsal.data.folder import ImageFiles, images_below, read_folder
from dsal.data.orders import class_order
from dsal.errors import FileFormatError, InputError, MissingDataError, UnknownNameError
from dsal.progress import OnProgress

PARTS = ("train", "val")
FULL, HUNDRED = "imagenet", "imagenet100"
GROUND_TRUTH, META, SOLUTION = "ILSVRC2012_validation_ground_truth.txt", "meta.mat", "LOC_val_solution.csv"


@DATASETS.register(FULL)
def load_imagenet(root: Path, download: bool = False, progress: OnProgress | None = None) -> DataSet:
    """ImageNet-1k: every class of ``root/imagenet``, labelled in the order of the wnids. It cannot be downloaded."""
    return _data_set(FULL, root / FULL, None)


@DATASETS.register(HUNDRED)
def load_imagenet100(root: Path, download: bool = False, progress: OnProgress | None = None) -> DataSet:
    """ImageNet-100: ``root/imagenet100``, else the classes of ``root/imagenet`` that a list or seed 1993 names."""
    if (root / HUNDRED).is_dir():
        return _data_set(HUNDRED, root / HUNDRED, None)
    folder, listed = root / FULL, root / f"{HUNDRED}.txt"
    if listed.is_file():
        return _data_set(HUNDRED, folder, tuple(listed.read_text(encoding="utf-8").split()))
    _check_there(folder / "train")
    wnids = [entry.name for entry in (folder / "train").iterdir() if entry.is_dir() and entry.name[0] != "."]
    return _data_set(HUNDRED, folder, imagenet100_classes(wnids))


def _data_set(name: str, folder: Path, classes: Sequence[str] | None) -> DataSet:
    train, val = (imagenet_files(folder, part, classes) for part in PARTS)
    wnids = tuple(sorted(set(train.labels)))
    number = {wnid: label for label, wnid in enumerate(wnids)}
    strange = sorted(set(val.labels) - set(wnids))
    if strange:
        raise InputError(f"{folder / 'val'} has images of classes that {folder / 'train'} has not: {strange[0]}")
    parts = [FileData(part.paths, torch.tensor([number[wnid] for wnid in part.labels])) for part in (train, val)]
    return DataSet(name, parts[0], parts[1], wnids, files_fingerprint(folder, *parts))


def imagenet_files(root: Path, part: str, classes: Sequence[str] | None = None) -> ImageFiles:
    """Files of one part, labelled with their WordNet numbers (wnid).

    Args:
        root: the folder that holds ``train`` and ``val``.
        part: ``"train"`` or ``"val"``.
        classes: wnids to keep; all by default.

    Raises:
        MissingDataError: a folder or label file is not there; says which.
        InputError: a class of ``classes`` has no images.
    """
    if part not in PARTS:
        raise UnknownNameError("part of ImageNet", part, PARTS)
    folder = root / part
    _check_there(folder)
    nested = any(entry.is_dir() for entry in folder.iterdir())
    files = read_folder(folder) if nested or part == "train" else _flat(root, images_below(folder))
    if classes is None:
        return files
    missing = sorted(set(classes) - set(files.labels))
    if missing:
        raise InputError(f"{folder} has no images of {', '.join(missing[:10])}")
    wanted = set(classes)
    rows = [row for row, label in enumerate(files.labels) if label in wanted]
    return ImageFiles(tuple(files.paths[row] for row in rows), tuple(files.labels[row] for row in rows))


def imagenet100_classes(wnids: Sequence[str]) -> tuple[str, ...]:
    """The field's hundred: the first of all thousand sorted wnids, permuted with NumPy's seed 1993."""
    names = sorted(wnids)
    if len(names) != 1000 or len(set(names)) != 1000:
        raise InputError(f"ImageNet-100 is drawn from the 1000 classes of ImageNet, got {len(set(names))}")
    return tuple(names[position] for position in class_order("1993", 1000)[:100])


def _check_there(folder: Path) -> None:
    if not folder.is_dir():
        raise MissingDataError(f"ImageNet is not complete: expected the folder {folder}")


def _flat(root: Path, paths: list[Path]) -> ImageFiles:
    """Validation images in one folder, labelled by a file beside it."""
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
        raise FileFormatError(f"the label file of {root / 'val'} says nothing of {unlabelled[0]}")
    return ImageFiles(tuple(paths), tuple(labels[path.stem] for path in paths))


def _solution(table: Path) -> dict[str, str]:
    """``ImageId,PredictionString``: name of the image; wnid and corners of each box."""
    with table.open(newline="", encoding="utf-8") as file:
        try:
            return {row["ImageId"]: row["PredictionString"].split()[0] for row in csv.DictReader(file)}
        except (KeyError, IndexError, AttributeError) as error:
            raise FileFormatError(f"{table} is not the label file of ImageNet's validation images") from error


def _ground_truth(truth: Path, meta: Path, paths: list[Path]) -> dict[str, str]:
    """One number a line, in the order of the images' names; ``meta.mat`` tells the wnid of each number."""
    from scipy.io import loadmat

    try:
        synsets = loadmat(meta, squeeze_me=True)["synsets"]
        names = dict(zip(synsets["ILSVRC2012_ID"].astype(int).tolist(), synsets["WNID"].tolist(), strict=True))
        numbers = np.loadtxt(truth, dtype=int, ndmin=1).tolist()
        wnids = [str(names[number]) for number in numbers]
    except (KeyError, ValueError, IndexError, TypeError) as error:
        raise FileFormatError(
            f"{truth} or {meta} is not what the development kit of ImageNet holds: {error}"
        ) from error
    if len(wnids) != len(paths):
        raise FileFormatError(f"{truth} labels {len(wnids)} images, but there are {len(paths)}")
    return {path.stem: wnid for path, wnid in zip(sorted(paths), wnids, strict=True)}
