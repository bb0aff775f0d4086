"""Build a stand-in for ImageNet: photographs of other data sets in the layout of the official files.

    python benchmarks/imagenet_standin.py --photos DIR --out DATA_ROOT

``DIR`` has one folder of JPEG files per class (such as Caltech-101 as distributed). Below ``DATA_ROOT`` this writes the
files that ILSVRC 2012 unpacks to: ``imagenet/train/<wnid>/<wnid>_<n>.JPEG``, the flat ``imagenet/val`` and the
two label files of the development kit; and ``imagenet100.txt``, a list of up to 100 of the classes. Then

    dsal pretrain --dataset imagenet --data-root DATA_ROOT ...

reads it like ImageNet. The wnids are the numbers of the classes, not WordNet's.
"""

from __future__ import annotations

import argparse
import random
import shutil
from pathlib import Path

import numpy as np
from PIL import Image
from scipy.io import savemat

from dsal.data.images.labelled_files import read_folder
from dsal.data.sets.imagenet import GROUND_TRUTH, META


def chosen(photos: Path, low: int, high: int, per_class: int, seed: int) -> dict[str, list[Path]]:
    """Pick at most ``per_class`` random JPEG files of each class whose longer side has ``low`` to ``high`` pixels."""
    files, found = read_folder(photos), dict[str, list[Path]]()
    for path, label in zip(files.paths, files.labels, strict=True):
        with Image.open(path) as image:
            if image.format == "JPEG" and low <= max(image.size) <= high:
                found.setdefault(label, []).append(path)
    draw = random.Random(seed)
    return {label: draw.sample(paths, min(per_class, len(paths))) for label, paths in found.items()}


def write(folder: Path, classes: list[list[Path]], val_share: float, seed: int) -> None:
    """Write the layout of ILSVRC 2012; a fraction of each class becomes validation images."""
    draw = random.Random(seed)
    # the development kit numbers classes in its own order
    numbers = draw.sample(range(1, len(classes) + 1), len(classes))
    val: list[tuple[Path, int]] = []
    for wnid, number, paths in zip(wnids(len(classes)), numbers, classes, strict=True):
        cut = max(1, round(val_share * len(paths)))
        val += [(path, number) for path in paths[:cut]]
        (folder / "train" / wnid).mkdir(parents=True)
        for image, path in enumerate(paths[cut:], 1):
            shutil.copyfile(path, folder / "train" / wnid / f"{wnid}_{image}.JPEG")
    draw.shuffle(val)
    (folder / "val").mkdir()
    for image, (path, _) in enumerate(val, 1):
        shutil.copyfile(path, folder / "val" / f"ILSVRC2012_val_{image:08d}.JPEG")
    (folder / GROUND_TRUTH).write_text("".join(f"{number}\n" for _, number in val))
    rows = sorted(zip(numbers, wnids(len(classes)), strict=True))
    savemat(folder / META, {"synsets": np.array(rows, dtype=[("ILSVRC2012_ID", "O"), ("WNID", "O")])})


def wnids(count: int) -> list[str]:
    """Return names like WordNet's: n00000001 for the first class."""
    return [f"n{number:08d}" for number in range(1, count + 1)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--photos", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--classes", type=int, default=100, help="how many classes of DIR to use, the largest first")
    parser.add_argument("--per-class", type=int, default=60)
    parser.add_argument("--pixels", type=int, nargs=2, default=(300, 500), help="range of the longer side")
    parser.add_argument("--val-share", type=float, default=0.2)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    found = chosen(arguments.photos, *arguments.pixels, arguments.per_class, arguments.seed)
    largest = sorted(found, key=lambda label: (-len(found[label]), label))[: arguments.classes]
    classes = [found[label] for label in sorted(largest)]
    write(arguments.out / "imagenet", classes, arguments.val_share, arguments.seed)
    (arguments.out / "imagenet100.txt").write_text("\n".join(wnids(len(classes))[:100]) + "\n")
    images = sum(map(len, classes))
    print(f"{images} photographs of {len(classes)} classes in {arguments.out / 'imagenet'}")
    print("classes: " + ", ".join(sorted(largest)))


if __name__ == "__main__":
    main()
