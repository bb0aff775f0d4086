"""What tests of several packages share."""

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from sklearn.datasets import load_sample_images
from tests.oracle import Joint, Rows, joint_weights, one_hot, relu

from dsal.backbones import Backbone, Card, channels_last, load_backbone, save_backbone
from dsal.data import DataSet, load_dataset
from dsal.data.features.feature_set import FeatureSet, read_features


@pytest.fixture(scope="session")
def sample_file() -> Path:
    """Real features: a ResNet-32 trained on classes 0-49 of CIFAR-100, 20 training and 10 test images of each class."""
    return Path(__file__).parent / "samples" / "cifar100-sample.safetensors"


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
    card = Card(architecture="resnet32", in_channels=1, size=28, mean=(0.5,), std=(0.5,))
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


@pytest.fixture(scope="session")
def rows(sample: FeatureSet) -> Rows:
    x = np.concatenate([sample.train_x, sample.test_x]).astype(np.float64)
    y = np.concatenate([sample.train_y, sample.test_y]).astype(np.int64)
    order = np.argsort(y, kind="stable")
    x, y = x[order], y[order]
    learned = np.arange(len(y)) % 30 < 26
    return Rows(x[learned], y[learned], x[~learned], y[~learned])


@pytest.fixture(scope="session")
def joint(rows: Rows) -> Joint:
    projection = np.random.RandomState(0).uniform(-1 / 8, 1 / 8, (64, 2048))
    x, y = relu(rows.x @ projection), one_hot(rows.y, 100)
    return Joint(x, y, relu(rows.new @ projection), 0.1, joint_weights(x, y, 0.1))
