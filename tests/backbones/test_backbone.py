"""Backbones: what features are, and what travels with the weights."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from dsal.backbones import Backbone, Card, channels_last, load_backbone, save_backbone
from dsal.data import load_dataset
from dsal.errors import FileFormatError, InputError, UnknownNameError
from dsal.store import load_tensors, save_tensors

CARD = Card(
    architecture="resnet32",
    dataset="omniglot",
    seen_classes=(3, 1, 4),
    class_order="natural",
    in_channels=1,
    size=28,
    mean=(0.1,),
    std=(0.3,),
    training={"recipe": {"epochs": 1}},
)


@pytest.fixture(scope="module")
def images() -> torch.Tensor:
    return load_dataset("omniglot").train.images[:6]


@pytest.fixture
def backbone() -> Backbone:
    torch.manual_seed(0)
    made = Backbone(CARD, head=torch.nn.Linear(64, 3))
    made.feature_mean.normal_()
    made.feature_std.uniform_(0.5, 2.0)
    return channels_last(made).eval()


def test_all_features_are_the_standardised_stages_side_by_side(backbone: Backbone, images: torch.Tensor) -> None:
    with torch.no_grad():
        stages = backbone.network.stages((images.float() / 255 - 0.1) / 0.3)  # type: ignore[operator]
    raw = torch.cat(stages, dim=1)
    torch.testing.assert_close(backbone.extract(images), (raw - backbone.feature_mean) / backbone.feature_std)
    assert backbone.stage_widths == (16, 32, 64)


def test_last_features_are_a_slice_of_all(backbone: Backbone, images: torch.Tensor) -> None:
    assert torch.equal(backbone.extract(images, "last"), backbone.extract(images, "all")[:, -64:])


def test_features_of_a_flipping_backbone_do_not_see_a_mirror(backbone: Backbone, images: torch.Tensor) -> None:
    plain = backbone.extract(images)
    backbone.card = replace(CARD, flip=True)
    flipped = backbone.extract(images)
    torch.testing.assert_close(flipped, backbone.extract(images.flip(3)))
    assert not torch.allclose(flipped, plain)


def test_extracting_does_not_depend_on_the_batch(backbone: Backbone, images: torch.Tensor) -> None:
    backbone.train()  # a caller may have left it so; statistics of the batch must not leak in
    one_by_one = torch.cat([backbone.extract(image[None]) for image in images])
    torch.testing.assert_close(backbone.extract(images), one_by_one)


def test_what_was_saved_comes_back(backbone: Backbone, images: torch.Tensor, tmp_path: Path) -> None:
    save_backbone(tmp_path / "w.safetensors", backbone)
    loaded = load_backbone(tmp_path / "w.safetensors")
    assert loaded.card == CARD
    assert loaded.fingerprint() == backbone.fingerprint()
    torch.testing.assert_close(loaded.extract(images), backbone.extract(images))
    torch.testing.assert_close(loaded.classify(images), backbone.classify(images))


def test_fingerprint_tells_weights_statistics_and_preprocessing_apart(backbone: Backbone) -> None:
    seen = {backbone.fingerprint()}
    for card in (replace(CARD, mean=(0.2,)), replace(CARD, flip=True)):
        backbone.card = card
        seen.add(backbone.fingerprint())
    backbone.feature_mean[0] += 1
    seen.add(backbone.fingerprint())
    next(backbone.network.parameters()).data.mul_(2)
    seen.add(backbone.fingerprint())
    assert len(seen) == 5
    backbone.head = None
    assert backbone.fingerprint() in seen  # the head decides no feature


def test_wrong_images_and_names_are_refused(backbone: Backbone, images: torch.Tensor) -> None:
    with pytest.raises(InputError, match="uint8 images of shape"):
        backbone.extract(images.float())
    with pytest.raises(InputError, match="uint8 images of shape"):
        backbone.extract(images.expand(-1, 3, -1, -1))
    with pytest.raises(UnknownNameError, match="did you mean 'last'"):
        backbone.extract(images, "lats")
    backbone.head = None
    with pytest.raises(InputError, match="no head"):
        backbone.classify(images)


def test_a_file_of_something_else_or_of_other_shapes_is_refused(backbone: Backbone, tmp_path: Path) -> None:
    path = tmp_path / "w.safetensors"
    save_tensors(path, {"a": torch.zeros(1)}, {"kind": "model"})
    with pytest.raises(FileFormatError, match="not a 'backbone'"):
        load_backbone(path)
    save_backbone(path, backbone)
    tensors, meta = load_tensors(path)
    tensors["feature_mean"] = tensors["feature_mean"][:5]
    save_tensors(path, tensors, meta)
    with pytest.raises(FileFormatError, match="feature_mean"):
        load_backbone(path)
