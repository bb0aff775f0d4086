"""A real network with random weights and real images: what the weights are worth does not matter here."""

import pytest
import torch

from dsal.backbones import Backbone, Card
from dsal.data import DataSet, ImageData, load_dataset
from dsal.data.dataset import fingerprint


@pytest.fixture
def backbone() -> Backbone:
    card = Card(
        architecture="resnet32",
        dataset="omniglot",
        seen_classes=(0, 1, 2),
        class_order="natural",
        in_channels=1,
        size=28,
        mean=(0.9,),
        std=(0.3,),
        training={"seed": 0},
    )
    torch.manual_seed(0)
    backbone = Backbone(card)
    backbone.feature_mean.uniform_(0, 1)
    backbone.feature_std.uniform_(1, 2)
    return backbone


@pytest.fixture(scope="session")
def dataset() -> DataSet:
    """The first six characters of Omniglot, by every fifth drawer: 18 training and 6 test images."""
    whole = load_dataset("omniglot")
    train, test = (
        ImageData(p.images[p.labels < 6][::5], p.labels[p.labels < 6][::5]) for p in (whole.train, whole.test)
    )
    return DataSet("omniglot", train, test, whole.class_names[:6], fingerprint(train, test))
