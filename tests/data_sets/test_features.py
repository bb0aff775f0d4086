"""Sets of features: stored small, read whole, cut to the last stage."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from dsal.data.features import (
    FeatureSet,
    feature_set_names,
    features_fingerprint,
    load_features,
    read_features,
    save_features,
)
from dsal.errors import FileFormatError, InputError, UnknownNameError
from dsal.store import save_tensors


@pytest.fixture
def features() -> FeatureSet:
    rng = np.random.default_rng(0)
    train_x, test_x = (rng.normal(size=(n, 7)).astype(np.float32) for n in (40, 9))
    train_y, test_y = np.arange(40) % 5, np.arange(9) % 5
    return FeatureSet(
        name="toy-features",
        train_x=train_x,
        train_y=train_y,
        test_x=test_x,
        test_y=test_y,
        class_names=("a", "b", "c", "d", "e"),
        fingerprint=features_fingerprint(train_x, train_y, test_x, test_y),
        stage_widths=(1, 2, 4),
        backbone={"architecture": "resnet32", "dataset": "toy", "seen_classes": [0, 1]},
        dataset="toy",
    )


def test_a_file_gives_back_what_float16_keeps(features: FeatureSet, tmp_path: Path) -> None:
    path = tmp_path / "toy.safetensors"
    save_features(path, features)
    back = read_features(path)
    assert back.train_x.dtype == np.float32
    assert load_file(path)["train_x"].dtype == np.float16
    for got, given in ((back.train_x, features.train_x), (back.test_x, features.test_x)):
        assert np.array_equal(got, given.astype(np.float16))
        assert np.abs(got - given).max() <= 2**-11 * np.abs(given).max()
    assert np.array_equal(back.train_y, features.train_y)
    assert np.array_equal(back.test_y, features.test_y)
    for name in ("name", "class_names", "stage_widths", "backbone", "dataset"):
        assert getattr(back, name) == getattr(features, name)


def test_saving_what_was_read_changes_nothing(features: FeatureSet, tmp_path: Path) -> None:
    save_features(tmp_path / "one", features)
    once = read_features(tmp_path / "one")
    save_features(tmp_path / "two", once)
    assert read_features(tmp_path / "two").fingerprint == once.fingerprint
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()


def test_last_is_a_slice_of_all(features: FeatureSet, tmp_path: Path) -> None:
    save_features(tmp_path / "toy", features)
    whole, last = read_features(tmp_path / "toy"), read_features(tmp_path / "toy", "last")
    assert last.stage_widths == (4,)
    assert np.array_equal(last.train_x, whole.train_x[:, 3:])
    assert np.array_equal(last.test_x, whole.test_x[:, 3:])
    assert last.fingerprint != whole.fingerprint
    assert last.select("last") is last
    assert whole.select("all") is whole
    with pytest.raises(UnknownNameError, match="all, last"):
        whole.select("first")


def test_the_fingerprint_follows_the_content(features: FeatureSet) -> None:
    arrays = [features.train_x, features.train_y, features.test_x, features.test_y]
    assert features_fingerprint(*(a.copy() for a in arrays)) == features.fingerprint
    assert features_fingerprint(*(np.asfortranarray(a) for a in arrays)) == features.fingerprint
    for number in range(4):
        changed = [a.copy() for a in arrays]
        changed[number][3] += 1
        assert features_fingerprint(*changed) != features.fingerprint


@pytest.mark.parametrize(
    "change",
    [
        {"train_x": np.zeros((40, 6), np.float32)},
        {"train_x": np.zeros((40, 7))},
        {"train_y": np.zeros(39, np.int64)},
        {"test_y": np.zeros(9, np.int32)},
        {"test_y": np.full(9, 5)},
        {"test_y": np.full(9, -1)},
        {"stage_widths": (4,)},
    ],
)
def test_parts_that_do_not_fit_are_refused(features: FeatureSet, change: dict[str, object]) -> None:
    with pytest.raises(InputError):
        replace(features, **change)


@pytest.mark.parametrize("value", [np.inf, np.nan, 7e4])
def test_what_float16_cannot_hold_is_refused(features: FeatureSet, value: float, tmp_path: Path) -> None:
    features.test_x[2, 3] = value
    with pytest.raises(InputError, match="float16"):
        save_features(tmp_path / "toy", features)
    assert list(tmp_path.iterdir()) == []


def test_foreign_and_incomplete_files_are_refused(features: FeatureSet, tmp_path: Path) -> None:
    path = tmp_path / "toy"
    save_tensors(path, {"train_x": features.train_x}, {"kind": "features"})
    with pytest.raises(FileFormatError, match="not a whole set"):
        read_features(path)
    save_tensors(path, {"train_x": features.train_x}, {"kind": "backbone"})
    with pytest.raises(FileFormatError, match="backbone"):
        read_features(path)
    save_features(path, features)
    path.write_bytes(path.read_bytes()[:-7])
    with pytest.raises(FileFormatError):
        read_features(path)


def test_an_unknown_name_lists_what_ships() -> None:
    with pytest.raises(UnknownNameError) as caught:
        load_features("cifar1000-features")
    assert caught.value.valid == feature_set_names()


@pytest.mark.parametrize("name", feature_set_names())
def test_everything_that_ships_can_be_read(name: str) -> None:
    features = load_features(name)
    assert features.name == name
    assert features.backbone["dataset"] == features.dataset
    assert np.isfinite(features.train_x).all()
    assert np.unique(features.train_y).tolist() == list(range(len(features.class_names)))
    assert load_features(name, "last").train_x.shape[1] == features.stage_widths[-1]
