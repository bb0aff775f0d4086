"""What tests of several packages share."""

from pathlib import Path

import pytest

from dsal.data.features import FeatureSet, read_features


@pytest.fixture(scope="session")
def sample_file() -> Path:
    """Real features: a ResNet-32 trained on classes 0-49 of CIFAR-100, 20 training and 10 test images of each class."""
    return Path(__file__).parent / "data" / "cifar100-sample.safetensors"


@pytest.fixture(scope="session")
def sample(sample_file: Path) -> FeatureSet:
    """The features of ``sample_file``."""
    return read_features(sample_file)
