"""Omniglot as it ships."""

import torch

from dsal.data import load_dataset


def test_omniglot_is_whole_and_split_by_drawer() -> None:
    data = load_dataset("omniglot")
    assert data.train.images.shape == (1623 * 15, 1, 28, 28)
    assert data.test.images.shape == (1623 * 5, 1, 28, 28)
    assert data.train.images.dtype == torch.uint8
    assert data.train.labels.bincount().tolist() == [15] * 1623
    assert data.test.labels.bincount().tolist() == [5] * 1623
    assert data.train.images.unique().tolist() == [0, 255]
    assert len(set(data.class_names)) == 1623
    assert len({name.split("/")[0] for name in data.class_names}) == 50


def test_no_test_image_is_among_the_training_images() -> None:
    data = load_dataset("omniglot")
    train = {image.tobytes() for image in data.train.images.numpy()}
    shared = sum(image.tobytes() in train for image in data.test.images.numpy())
    assert shared <= 5, "only strokes so simple that two people drew the same pixels may coincide"


def test_the_fingerprint_is_stable() -> None:
    assert load_dataset("omniglot").fingerprint == load_dataset("omniglot").fingerprint
