"""ImageNet's layouts, with the real names of classes and files but without their pixels."""

import tracemalloc
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.io import savemat

from dsal.backbones import Backbone
from dsal.backbones.extraction import extract_dataset
from dsal.data import FileData, load_dataset
from dsal.data.images.image_files import Listing
from dsal.data.sets.class_folders import ListedImages
from dsal.data.sets.imagenet import GROUND_TRUTH, META, SOLUTION, imagenet100_classes, imagenet_files
from dsal.errors import FileFormatError, InputError, MemoryNeededError, MissingDataError

WNIDS = ("n01440764", "n01443537", "n01484850")


def touch(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for wnid in WNIDS:
        touch(tmp_path / "train" / wnid / f"{wnid}_18.JPEG")
    for number in (1, 2, 3, 4):
        touch(tmp_path / "val" / f"ILSVRC2012_val_0000000{number}.JPEG")
    return tmp_path


def labels(files: ListedImages) -> list[str]:
    return [label for _, label in sorted(zip(files.paths, files.labels, strict=True))]


def test_train_and_a_choice_of_classes(root: Path) -> None:
    assert labels(imagenet_files(root, "train")) == list(WNIDS)
    assert labels(imagenet_files(root, "train", WNIDS[1:2])) == ["n01443537"]
    with pytest.raises(InputError, match="no images of n9"):
        imagenet_files(root, "train", ["n9"])


def test_development_kit(root: Path) -> None:
    (root / GROUND_TRUTH).write_text("3\n1\n1\n2\n")
    synsets = np.array([(i + 1, w) for i, w in enumerate(WNIDS)], dtype=[("ILSVRC2012_ID", "O"), ("WNID", "O")])
    savemat(root / META, {"synsets": synsets})
    assert labels(imagenet_files(root, "val")) == [WNIDS[2], WNIDS[0], WNIDS[0], WNIDS[1]]
    (root / GROUND_TRUTH).write_text("3\n1\n")
    with pytest.raises(FileFormatError, match="labels 2 images, but there are 4"):
        imagenet_files(root, "val")
    (root / GROUND_TRUTH).write_text("3\n1\n9\n1\n")
    with pytest.raises(FileFormatError, match="development kit"):
        imagenet_files(root, "val")


def test_solution_table(root: Path) -> None:
    rows = [f"ILSVRC2012_val_0000000{n},{WNIDS[n % 3]} 1 2 3 4 {WNIDS[n % 3]} 5 6 7 8" for n in (4, 2, 1, 3)]
    (root / SOLUTION).write_text("\n".join(["ImageId,PredictionString", *rows]))
    assert labels(imagenet_files(root, "val")) == [WNIDS[1], WNIDS[2], WNIDS[0], WNIDS[1]]
    (root / SOLUTION).write_text("\n".join(["ImageId,PredictionString", *rows[:3]]))
    with pytest.raises(FileFormatError, match="has no label for ILSVRC2012_val_00000003"):
        imagenet_files(root, "val")


def test_folders_of_validation(root: Path) -> None:
    for path in list((root / "val").iterdir()):
        path.unlink()
    touch(root / "val" / WNIDS[0] / "a.JPEG")
    assert labels(imagenet_files(root, "val")) == [WNIDS[0]]


def test_what_is_missing_is_named(root: Path) -> None:
    with pytest.raises(MissingDataError, match=GROUND_TRUTH):
        imagenet_files(root, "val")
    with pytest.raises(MissingDataError, match="expected the folder"):
        imagenet_files(root / "train", "val")
    with pytest.raises(InputError, match="unknown part"):
        imagenet_files(root, "test")


def test_the_hundred_of_seed_1993() -> None:
    wnids = [f"n{number:08d}" for number in range(1000)]
    permutation = np.random.RandomState(1993).permutation(1000)
    assert imagenet100_classes(wnids[::-1]) == tuple(wnids[position] for position in permutation[:100])
    with pytest.raises(InputError, match="1000 classes"):
        imagenet100_classes(wnids[:999])


@pytest.fixture
def pictures(album: Path, tmp_path: Path) -> Path:
    """A data root with an ImageNet of seven characters, in their order of names."""
    for part in ("train", "val"):
        folder = tmp_path / "imagenet" / part
        folder.mkdir(parents=True)
        for label, source in enumerate(sorted((album / "test").iterdir())[:7]):
            (folder / f"n{label}").symlink_to(source)
    return tmp_path


def test_images_are_decoded_when_wanted(pictures: Path, backbone: Backbone) -> None:
    data = load_dataset("imagenet", pictures)
    assert isinstance(data.train, FileData)
    assert data.class_names == tuple(f"n{label}" for label in range(7))
    assert data.train.labels.bincount().tolist() == [5] * 7
    small = data.train.at(28, 1)
    batches = [images for images, _ in small.batches(16)]
    assert [len(batch) for batch in batches] == [16, 16, 3]
    rows = torch.tensor([34, 0, 17])
    few = small.take(rows).in_memory()
    assert torch.equal(few.images, torch.cat(batches)[rows])
    assert few.labels.tolist() == [6, 0, 3]
    features = extract_dataset(backbone, data, batch_size=16)
    np.testing.assert_allclose(features.train_x[rows], backbone.extract(few.images), atol=1e-5)
    with pytest.raises(MemoryNeededError, match="smaller images"):
        data.train.take(rows).at(10**7, 3).in_memory()


def test_other_files_are_another_data_set(pictures: Path) -> None:
    before = load_dataset("imagenet", pictures).fingerprint
    assert load_dataset("imagenet", pictures).fingerprint == before
    (pictures / "imagenet" / "val" / "n0").unlink()
    assert load_dataset("imagenet", pictures).fingerprint != before


def test_a_list_of_classes(pictures: Path) -> None:
    (pictures / "imagenet100.txt").write_text("n4\nn2\n")
    data = load_dataset("imagenet100", pictures)
    assert data.class_names == ("n2", "n4")
    assert (len(data.train), len(data.test)) == (10, 10)
    (pictures / "imagenet100.txt").unlink()
    with pytest.raises(InputError, match="1000 classes"):
        load_dataset("imagenet100", pictures)
    (pictures / "imagenet").rename(pictures / "imagenet100")
    assert len(load_dataset("imagenet100", pictures).class_names) == 7
    with pytest.raises(MissingDataError, match="expected the folder"):
        load_dataset("imagenet", pictures)


def test_validation_classes_must_be_those_of_training(pictures: Path) -> None:
    (pictures / "imagenet" / "train" / "n3").unlink()
    with pytest.raises(InputError, match="n3"):
        load_dataset("imagenet", pictures)


def test_a_list_of_many_files_is_small(tmp_path: Path) -> None:
    """A path object takes hundreds of bytes; 20,000 listed files must not."""
    names = [f"n{number // 1000:08d}/n{number // 1000:08d}_{number}.JPEG" for number in range(20_000)]
    tracemalloc.start()
    try:
        listing = Listing(tmp_path, names)
        some = listing.take(np.arange(19_999, -1, -2))
        held = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert held / len(names) < len(names[-1]) + 20
    assert (len(some), some[0], some[1:3][1]) == (10_000, tmp_path / names[-1], tmp_path / names[-5])
    assert list(listing)[:2] == [tmp_path / name for name in names[:2]]
