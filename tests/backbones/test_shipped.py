"""What ships in the package: the features are those of the weights, and both say where they come from."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
import torch

from dsal.backbones import load_backbone, shipped_weights
from dsal.backbones.extraction import card_record
from dsal.data import FeatureSet, feature_set_names, load_dataset, load_features
from dsal.data.dataset import EMBEDDED


def pair(dataset: str) -> tuple[str, str]:
    return f"{dataset}-resnet32", f"{dataset}-features"


@cache
def shipped(name: str) -> FeatureSet:
    """A set of features that ships, read once: those of CIFAR-100 take seconds to decode."""
    return load_features(name)


SHIPPED = [name.removesuffix("-features") for name in feature_set_names()]


def test_every_set_of_features_has_its_weights() -> None:
    assert SHIPPED
    assert set(shipped_weights()) == {pair(dataset)[0] for dataset in SHIPPED}


@pytest.mark.parametrize("dataset", SHIPPED)
def test_features_carry_the_card_of_the_shipped_weights(dataset: str) -> None:
    weights, features = pair(dataset)
    backbone, data = load_backbone(weights), shipped(features)
    assert data.name == features
    later = {"shift": 0, "auxiliary": "", "transforms": []}  # fields of the card that came after some of the files
    assert {**later, **data.backbone} == card_record(backbone)
    assert data.dataset == dataset
    assert data.widths == {kind: backbone.widths[kind] for kind in backbone.kinds}
    history = backbone.card.training["history"]
    assert [entry["epoch"] for entry in history] == list(range(1, history[-1]["epochs"] + 1))  # trained to the end


@pytest.mark.parametrize("dataset", SHIPPED)
def test_features_are_standardised_on_the_base_classes(dataset: str) -> None:
    data = shipped(pair(dataset)[1])
    assert np.isfinite(data.train_x).all()
    assert np.unique(data.train_y).tolist() == list(range(len(data.class_names)))
    base = data.train_x[np.isin(data.train_y, data.backbone["seen_classes"])]
    np.testing.assert_allclose(base.mean(0), 0, atol=0.05)  # a part of the base images was held out
    np.testing.assert_allclose(base.std(0), 1, atol=0.05)


def test_the_embedded_features_of_cifar100_are_blocks_in_32_megabytes() -> None:
    assert shipped("cifar100-features").kind == "blocks"
    assert (EMBEDDED / "cifar100-features.safetensors").stat().st_size <= 32e6


def test_omniglot_features_come_from_the_shipped_weights_and_images() -> None:
    data, images = shipped("omniglot-features"), load_dataset("omniglot")
    rows = torch.arange(0, len(images.test), 97)
    made = load_backbone("omniglot-resnet32").extract(images.test.images[rows]).numpy()
    # float16 keeps 11 bits
    np.testing.assert_allclose(data.test_x[rows.numpy()], made, rtol=2e-3, atol=2e-3)
    assert np.array_equal(data.test_y, images.test.labels.numpy())


def test_the_head_of_omniglot_has_the_accuracy_its_card_says() -> None:
    backbone, images = load_backbone("omniglot-resnet32"), load_dataset("omniglot").test
    seen = torch.tensor(backbone.card.seen_classes)
    rows = torch.isin(images.labels, seen).nonzero().squeeze(1)[::10]
    position = torch.full((1623,), -1)
    position[seen] = torch.arange(len(seen))
    right = backbone.classify(images.images[rows]).argmax(1) == position[images.labels[rows]]
    # A tenth of the images: three standard errors.
    said = backbone.card.training["base_test_accuracy"]
    assert abs(100 * float(right.float().mean()) - said) < 300 * (said / 100 * (1 - said / 100) / len(rows)) ** 0.5
