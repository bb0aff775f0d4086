"""Backbones: what features are, and what travels with the weights."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from dsal.backbones import Backbone, Card, channels_last, load_backbone, save_backbone
from dsal.data import load_dataset
from dsal.errors import FileFormatError, InputError, UnknownNameError
from dsal.files.tensors import load_tensors, save_tensors

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


def hooked_maps(backbone: Backbone, images: torch.Tensor) -> dict[str, torch.Tensor]:
    """Outputs of all blocks and the input of the first, as hooks see them."""
    seen: dict[str, torch.Tensor] = {}
    blocks = [(name, part) for name, part in backbone.network.named_modules() if re.fullmatch(r"layer\d\.\d", name)]
    handles = [
        part.register_forward_hook(lambda _m, _i, out, name=name: seen.update({name: out})) for name, part in blocks
    ]
    handles.append(blocks[0][1].register_forward_pre_hook(lambda _m, given: seen.update({"stem": given[0]})))
    with torch.no_grad():
        backbone.network((images.float() / 255 - 0.1) / 0.3)
    for handle in handles:
        handle.remove()
    return seen


def test_features_are_standardised_statistics_of_the_maps(backbone: Backbone, images: torch.Tensor) -> None:
    maps = hooked_maps(backbone, images)
    assert len(maps) == 16
    ends = [f"layer{number}.4" for number in (1, 2, 3)]
    stages = [maps[name].double().mean((2, 3)) for name in ends]
    others = []
    for name in ("stem", *(f"layer{number}.{index}" for number in (1, 2, 3) for index in range(5))):
        values = maps[name].double().flatten(2)
        if name not in ends:
            others.append(values.mean(2))
        others.append(((values - values.mean(2, keepdim=True)) ** 2).mean(2).sqrt())
    raw = {"last": stages[-1:], "stages": stages, "blocks": others + stages}
    assert backbone.widths == {"last": 64, "stages": 112, "blocks": 1152}
    backbone.set_statistics(torch.randn(50, 1152) * 3 + 1)
    for kind, parts in raw.items():
        width = backbone.widths[kind]
        expected = (torch.cat(parts, 1) - backbone.feature_mean[-width:]) / backbone.feature_std[-width:]
        torch.testing.assert_close(backbone.extract(images, kind), expected.float(), rtol=1e-4, atol=1e-4)
    for kind in ("last", "stages"):
        tail = backbone.extract(images, "blocks")[:, -backbone.widths[kind] :]
        assert torch.equal(backbone.extract(images, kind), tail)
    assert torch.equal(backbone.extract(images), backbone.extract(images, "stages"))


def test_statistics_are_those_of_the_rows(backbone: Backbone, images: torch.Tensor) -> None:
    backbone.set_statistics(backbone.pooled(images, "blocks"))
    made = backbone.extract(images, "blocks").double()
    torch.testing.assert_close(made.mean(0), torch.zeros(1152).double(), rtol=0, atol=1e-3)
    spread = made.std(0)
    assert ((spread - 1).abs() < 1e-3).logical_or(spread == 0).all()  # 0: a channel that is dead in all six images
    with pytest.raises(InputError, match="'blocks': 1152"):
        backbone.set_statistics(torch.zeros(6, 100))


def test_features_of_a_flipping_backbone_do_not_see_a_mirror(backbone: Backbone, images: torch.Tensor) -> None:
    plain = backbone.extract(images)
    backbone.card = replace(CARD, flip=True)
    flipped = backbone.extract(images)
    torch.testing.assert_close(flipped, backbone.extract(images.flip(3)))
    assert not torch.allclose(flipped, plain)


@pytest.mark.parametrize("flip", [False, True])
def test_features_of_shifted_images_are_averaged(backbone: Backbone, images: torch.Tensor, flip: bool) -> None:
    backbone.card = replace(CARD, flip=flip)
    height, width = images.shape[2:]
    padded = np.pad(images.numpy(), [(0, 0), (0, 0), (2, 2), (2, 2)], mode="reflect")
    views = [torch.from_numpy(padded[:, :, y : y + height, x : x + width].copy()) for y, x in ((2, 2), (0, 0), (4, 4))]
    wanted = sum(w * backbone.extract(view) for view, w in zip(views, (0.5, 0.25, 0.25), strict=True))
    backbone.card = replace(CARD, flip=flip, shift=2)
    torch.testing.assert_close(backbone.extract(images), wanted)


def test_extracting_does_not_depend_on_the_batch(backbone: Backbone, images: torch.Tensor) -> None:
    backbone.train()  # a caller may have left it so; statistics of the batch must not leak in
    one_by_one = torch.cat([backbone.extract(image[None]) for image in images])
    torch.testing.assert_close(backbone.extract(images), one_by_one)


def test_extracting_and_classifying_leave_every_part_in_its_mode(backbone: Backbone, images: torch.Tensor) -> None:
    backbone.train()
    backbone.network.get_submodule("layer2").eval()  # as one who trains the rest alone
    before = {name: part.training for name, part in backbone.named_modules()}
    state = {name: value.clone() for name, value in backbone.state_dict().items()}
    backbone.extract(images)
    backbone.classify(images)
    with pytest.raises(InputError):
        backbone.extract(images.float())
    assert {name: part.training for name, part in backbone.named_modules()} == before
    assert len(set(before.values())) == 2
    for name, value in backbone.state_dict().items():
        assert torch.equal(value, state[name]), name


def test_weights_without_statistics_for_blocks_load_and_say_what_to_do(
    backbone: Backbone, images: torch.Tensor, tmp_path: Path
) -> None:
    save_backbone(tmp_path / "narrow", backbone)  # 112 statistics, as files of before hold them
    narrow = load_backbone(tmp_path / "narrow")
    assert narrow.kinds == ("last", "stages")
    with pytest.raises(InputError, match=r"last, stages, not 'blocks': dsal\.backbones\.extraction\.add_statistics"):
        narrow.extract(images, "blocks")
    backbone.set_statistics(torch.randn(9, 1152))
    save_backbone(tmp_path / "wide", backbone)
    wide = load_backbone(tmp_path / "wide")
    assert wide.kinds == ("last", "stages", "blocks")
    torch.testing.assert_close(wide.extract(images, "blocks"), backbone.extract(images, "blocks"))


def test_what_was_saved_comes_back(backbone: Backbone, images: torch.Tensor, tmp_path: Path) -> None:
    save_backbone(tmp_path / "w.safetensors", backbone)
    loaded = load_backbone(tmp_path / "w.safetensors")
    assert loaded.card == CARD
    assert loaded.fingerprint() == backbone.fingerprint()
    torch.testing.assert_close(loaded.extract(images), backbone.extract(images))
    torch.testing.assert_close(loaded.classify(images), backbone.classify(images))


def test_fingerprint_tells_weights_statistics_and_preprocessing_apart(backbone: Backbone) -> None:
    seen = {backbone.fingerprint()}
    for card in (replace(CARD, mean=(0.2,)), replace(CARD, flip=True), replace(CARD, shift=1)):
        backbone.card = card
        seen.add(backbone.fingerprint())
    backbone.feature_mean[0] += 1
    seen.add(backbone.fingerprint())
    next(backbone.network.parameters()).data.mul_(2)
    seen.add(backbone.fingerprint())
    assert len(seen) == 6
    narrow = backbone.fingerprint()
    wide = torch.cat([torch.zeros(1040), backbone.feature_mean]), torch.cat([torch.ones(1040), backbone.feature_std])
    backbone.feature_mean, backbone.feature_std = wide
    assert backbone.fingerprint() == narrow  # statistics of other kinds of features decide nothing about these
    backbone.feature_mean[0] += 1
    assert backbone.fingerprint() == narrow
    assert backbone.fingerprint("blocks") != narrow
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
    with pytest.raises(FileFormatError, match="feature_"):
        load_backbone(path)


def test_weights_that_lead_to_nan_are_refused(backbone: Backbone, images: torch.Tensor, tmp_path: Path) -> None:
    path = tmp_path / "w.safetensors"
    save_backbone(path, backbone)
    arrays, meta = load_tensors(path)
    name = "network.layer1.1.bn1.running_var"
    arrays[name] = -arrays[name]
    save_tensors(path, arrays, meta)
    with pytest.raises(FileFormatError, match=r"layer1\.1\.bn1\.running_var must be from 0"):
        load_backbone(path)
    backbone.network.conv1.weight.data.fill_(3e38)
    with pytest.raises(InputError, match="NaN or infinities"):
        backbone.extract(images)
