"""Sets of features: stored small, read whole, cut to a narrower kind."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from dsal.data.features.feature_set import (
    FeatureSet,
    features_fingerprint,
    read_features,
    save_features,
)
from dsal.errors import FileFormatError, InputError, UnknownNameError
from dsal.files.tensors import load_tensors, save_tensors


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
        widths={"last": 3, "stages": 5, "blocks": 7},
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
    for name in ("name", "class_names", "widths", "backbone", "dataset"):
        assert getattr(back, name) == getattr(features, name)


def test_a_coded_file_gives_back_what_the_step_keeps(features: FeatureSet, tmp_path: Path) -> None:
    save_features(tmp_path / "toy", features, step=0.01)
    back = read_features(tmp_path / "toy")
    for got, given in ((back.train_x, features.train_x), (back.test_x, features.test_x)):
        assert got.shape == given.shape
        assert 0 < np.abs(got - given).max() < 0.03
    for name in ("name", "class_names", "widths", "backbone", "dataset"):
        assert getattr(back, name) == getattr(features, name)
    assert np.array_equal(back.select("last").test_x, back.test_x[:, -3:])
    arrays, meta = load_tensors(tmp_path / "toy")
    save_tensors(tmp_path / "toy", {**arrays, "test_y": arrays["test_y"][:-1]}, meta)
    with pytest.raises(FileFormatError, match="not a complete set"):
        read_features(tmp_path / "toy")


def test_saving_what_was_read_changes_nothing(features: FeatureSet, tmp_path: Path) -> None:
    save_features(tmp_path / "one", features)
    once = read_features(tmp_path / "one")
    save_features(tmp_path / "two", once)
    assert read_features(tmp_path / "two").fingerprint == once.fingerprint
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()


def test_a_narrower_kind_is_the_tail_of_a_wider_one(features: FeatureSet, tmp_path: Path) -> None:
    save_features(tmp_path / "toy", features)
    whole = read_features(tmp_path / "toy")
    assert whole.kind == "blocks"
    found = {whole.fingerprint}
    for kind, width in (("stages", 5), ("last", 3)):
        cut = read_features(tmp_path / "toy", kind)
        assert (cut.kind, list(cut.widths.values())[-1]) == (kind, width)
        assert np.array_equal(cut.train_x, whole.train_x[:, -width:])
        assert np.array_equal(cut.test_x, whole.test_x[:, -width:])
        assert np.array_equal(cut.test_x, whole.select("stages").select(kind).test_x)
        assert cut.select(kind) is cut
        found.add(cut.fingerprint)
    assert len(found) == 3
    assert whole.select(None) is whole.select("blocks") is whole
    with pytest.raises(UnknownNameError, match="blocks, last, stages"):
        whole.select("first")
    with pytest.raises(UnknownNameError, match=r"names: last, stages$"):
        whole.select("stages").select("blocks")


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
        {"widths": {"last": 4}},
        {"widths": {}},
        {"widths": {"last": 9, "blocks": 7}},
        {"widths": {"last": 0, "blocks": 7}},
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
    with pytest.raises(FileFormatError, match="the key 'name'"):
        read_features(path)
    save_tensors(path, {"train_x": features.train_x}, {"kind": "backbone"})
    with pytest.raises(FileFormatError, match="backbone"):
        read_features(path)
    save_features(path, features)
    path.write_bytes(path.read_bytes()[:-7])
    with pytest.raises(FileFormatError):
        read_features(path)


def test_arrays_of_any_kind_become_a_set(tmp_path: Path) -> None:
    made = FeatureSet.from_arrays([[1, 2], [3, 4], [5, 6]], ["b", "a", "b"], [[7, 8]], ["b"], name="mine")
    save_features(tmp_path / "mine.safetensors", made)
    read = read_features(tmp_path / "mine.safetensors")
    assert (read.name, read.class_names, read.fingerprint) == ("mine", ("a", "b"), made.fingerprint)
    assert (read.train_y.tolist(), read.test_y.tolist()) == ([1, 0, 1], [1])
    with pytest.raises(InputError, match="'c' is not"):
        FeatureSet.from_arrays([[1.0]], ["b"], [[2.0]], ["c"])
    with pytest.raises(InputError, match="shape"):
        FeatureSet.from_arrays([[1.0]], ["b"], [[2.0, 3.0]], ["b"])
