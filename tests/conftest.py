"""What tests of several packages share."""

from pathlib import Path

import pytest
import torch
from PIL import Image
from sklearn.datasets import load_sample_images

from dsal.backbones import Backbone, Card, channels_last, load_backbone, save_backbone
from dsal.data import DataSet, load_dataset
from dsal.data.features import FeatureSet, read_features


@pytest.fixture(scope="session")
def sample_file() -> Path:
    """Real features: a ResNet-32 trained on classes 0-49 of CIFAR-100, 20 training and 10 test images of each class."""
    return Path(__file__).parent / "data" / "cifar100-sample.safetensors"


@pytest.fixture(scope="session")
def sample(sample_file: Path) -> FeatureSet:
    """The features of ``sample_file``."""
    return read_features(sample_file)


@pytest.fixture(scope="session")
def characters() -> DataSet:
    """Omniglot: handwritten characters, 20 drawers each."""
    return load_dataset("omniglot")


@pytest.fixture(scope="session")
def album(characters: DataSet, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folders of characters: ``first`` (4), ``second`` (3), ``unseen`` (3), 15 drawers; ``test``, all ten, 5 others."""
    root = tmp_path_factory.mktemp("album")
    for part, data in (("train", characters.train), ("test", characters.test)):
        for label in range(10):
            group = ("first" if label < 4 else "second" if label < 7 else "unseen") if part == "train" else "test"
            folder = root / group / f"char {label * 37}"  # far apart in the list: of different alphabets
            folder.mkdir(parents=True)
            for number, row in enumerate(torch.nonzero(data.labels == label * 37).flatten().tolist()):
                Image.fromarray(data.images[row, 0].numpy()).save(folder / f"{number}.png")
    return root


@pytest.fixture(scope="session")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file of a small untrained network: its random features will do for characters."""
    path = tmp_path_factory.mktemp("weights") / "small.safetensors"
    torch.manual_seed(0)
    card = Card(
        architecture="resnet32",
        dataset=None,
        seen_classes=None,
        class_order="natural",
        in_channels=1,
        size=28,
        mean=(0.5,),
        std=(0.5,),
    )
    save_backbone(path, channels_last(Backbone(card)).eval())
    return path


@pytest.fixture
def backbone(weights: Path) -> Backbone:
    """The network of ``weights``."""
    return load_backbone(weights)


@pytest.fixture(scope="session")
def photo_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four classes of 24 JPEG files each, 60 to 110 pixels wide: pieces of two photographs, of their two halves."""
    folder = tmp_path_factory.mktemp("photos")
    for photo, pixels in zip(("china", "flower"), load_sample_images().images, strict=True):
        for half in range(2):
            place = folder / f"{photo}-{half}"
            place.mkdir()
            for number in range(24):
                left, upper = 90 * (number % 6), 213 * half + 30 * (number // 6)
                right, lower = left + 60 + 10 * (number % 6), upper + 70 + 7 * (number % 7)
                Image.fromarray(pixels[upper:lower, left:right]).save(place / f"{number}.JPEG", quality=90)
    return folder
