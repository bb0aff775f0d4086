"""Tiny-ImageNet in its official layout, with a handful of generated images, grey ones among them."""

from __future__ import annotations

import hashlib
import shutil
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from dsal.data import FileData, Scenario, load_dataset
from dsal.data.dataset import Archive
from dsal.data.sets import imagenet
from dsal.errors import FileFormatError, MissingDataError

WNIDS = ("n02124075", "n04067472", "n01443537")  # not sorted, as in the official file
WORDS = "n00001740\tentity\nn02124075\tEgyptian cat\nn04067472\treel\nn01443537\tgoldfish, Carassius auratus\n"


def save_image(path: Path, seed: int, mode: str = "RGB") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pixels = np.random.RandomState(seed).randint(0, 256, (64, 64, 3), dtype=np.uint8)
    Image.fromarray(pixels).convert(mode).save(path, quality=90)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "tiny-imagenet-200"
    for number, wnid in enumerate(WNIDS):
        for image in range(2):
            mode = "L" if (number, image) == (0, 1) else "RGB"
            save_image(folder / "train" / wnid / "images" / f"{wnid}_{image}.JPEG", 10 * number + image, mode)
        (folder / "train" / wnid / f"{wnid}_boxes.txt").write_text("")
    lines = []
    for number, wnid in enumerate((WNIDS[2], WNIDS[0], WNIDS[1])):
        save_image(folder / "val" / "images" / f"val_{number}.JPEG", 100 + number, "L" if number == 1 else "RGB")
        lines.append(f"val_{number}.JPEG\t{wnid}\t0\t0\t63\t63\n")
    (folder / "val" / "val_annotations.txt").write_text("".join(lines))
    save_image(folder / "test" / "images" / "test_0.JPEG", 200)
    (folder / "wnids.txt").write_text("\n".join(WNIDS) + "\n")
    (folder / "words.txt").write_text(WORDS)
    return tmp_path


def test_layout(root: Path) -> None:
    data = load_dataset("tiny-imagenet", root)
    assert data.class_names == ("Egyptian cat", "reel", "goldfish")
    assert isinstance(data.train, FileData)
    assert [path.name[:9] for path in data.train.paths] == [WNIDS[label] for label in data.train.labels]
    assert data.test.labels.tolist() == [2, 0, 1]
    assert (len(data.train), len(data.test), data.train.size) == (6, 3, 64)


def test_grey_images_have_three_equal_channels(root: Path) -> None:
    images, labels = next(iter(load_dataset("tiny-imagenet", root).test.batches(3)))
    assert images.shape == (3, 3, 64, 64)
    assert labels.tolist() == [2, 0, 1]
    assert torch.equal(images[1, 0], images[1, 1])
    assert not torch.equal(images[0, 0], images[0, 1])


def test_orders(root: Path) -> None:
    data = load_dataset("tiny-imagenet", root)
    natural, seeded = (Scenario.deal(3, base=1, phases=2, order=order) for order in ("natural", "1993"))
    assert [data.class_names[natural.labels(k)[0]] for k in range(3)] == ["Egyptian cat", "reel", "goldfish"]
    expected = np.random.RandomState(1993).permutation(3)
    assert [seeded.labels(k)[0] for k in range(3)] == expected.tolist()


def test_two_classes_of_one_name_are_told_apart(root: Path) -> None:
    words = root / "tiny-imagenet-200" / "words.txt"
    words.write_text(WORDS.replace("reel", "goldfish"))
    names = load_dataset("tiny-imagenet", root).class_names
    assert names == ("Egyptian cat", "goldfish (n04067472)", "goldfish (n01443537)")


@pytest.mark.parametrize(
    ("missing", "message"),
    [
        ("wnids.txt", r"expected the file .*wnids\.txt"),
        ("words.txt", r"expected the file .*words\.txt"),
        ("train/n04067472", r"expected the folder .*n04067472"),
        ("val/val_annotations.txt", r"expected the file .*val_annotations\.txt"),
        ("val/images", r"expected the folder .*images"),
        ("val/images/val_1.JPEG", r"labels val_1\.JPEG, which is not in"),
    ],
)
def test_what_is_missing_is_named(root: Path, missing: str, message: str) -> None:
    path = root / "tiny-imagenet-200" / missing
    shutil.rmtree(path) if path.is_dir() else path.unlink()
    with pytest.raises(MissingDataError, match=message):
        load_dataset("tiny-imagenet", root)


def test_a_missing_training_image_is_noticed(root: Path) -> None:
    (root / "tiny-imagenet-200" / "train" / "n04067472" / "images" / "n04067472_1.JPEG").unlink()
    with pytest.raises(FileFormatError, match="n04067472 has 1 images where another class has 2"):
        load_dataset("tiny-imagenet", root)


def test_extra_files_are_named(root: Path) -> None:
    save_image(root / "tiny-imagenet-200" / "val" / "images" / "val_9.JPEG", 0)
    with pytest.raises(FileFormatError, match=r"val_9\.JPEG has no label"):
        load_dataset("tiny-imagenet", root)
    (root / "tiny-imagenet-200" / "val" / "images" / "val_9.JPEG").unlink()
    save_image(root / "tiny-imagenet-200" / "train" / "n99999999" / "images" / "x.JPEG", 0)
    with pytest.raises(FileFormatError, match=r"n99999999, which is not in wnids\.txt"):
        load_dataset("tiny-imagenet", root)


def test_a_wrong_annotation_is_named(root: Path) -> None:
    table = root / "tiny-imagenet-200" / "val" / "val_annotations.txt"
    table.write_text(table.read_text().replace("n02124075", "n00000000"))
    with pytest.raises(FileFormatError, match="line 2: expected a file and a class"):
        load_dataset("tiny-imagenet", root)


def test_a_class_listed_twice_is_named(root: Path) -> None:
    (root / "tiny-imagenet-200" / "wnids.txt").write_text("n02124075\nn02124075\n")
    with pytest.raises(FileFormatError, match="lists n02124075 more than once"):
        load_dataset("tiny-imagenet", root)


def test_without_the_data(tmp_path: Path) -> None:
    with pytest.raises(MissingDataError, match=r"tiny-imagenet-200\.zip"):
        load_dataset("tiny-imagenet", tmp_path)


def test_download_and_unpacking(
    root: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The archive is downloaded from a file address, checked, and unpacked once; a broken one leaves nothing."""
    served, target = tmp_path_factory.mktemp("served"), tmp_path_factory.mktemp("target")
    archive = served / "tiny-imagenet-200.zip"
    with zipfile.ZipFile(archive, "w") as file:
        for path in sorted((root / "tiny-imagenet-200").rglob("*")):
            file.write(path, path.relative_to(root))
    published = Archive(archive.as_uri(), hashlib.sha256(archive.read_bytes()).hexdigest())
    monkeypatch.setattr(imagenet, "TINY_ARCHIVE", published)
    data = load_dataset("tiny-imagenet", target, download=True)
    assert data.class_names == ("Egyptian cat", "reel", "goldfish")
    assert sorted(path.name for path in target.iterdir()) == ["tiny-imagenet-200", "tiny-imagenet-200.zip"]
    shutil.rmtree(target / "tiny-imagenet-200")
    (target / "tiny-imagenet-200.zip").write_bytes(archive.read_bytes()[:-30])
    with pytest.raises(FileFormatError, match="truncated or corrupt"):
        load_dataset("tiny-imagenet", target)
    assert [path.name for path in target.iterdir()] == ["tiny-imagenet-200.zip"]
