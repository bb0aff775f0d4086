"""The cache: used when it is right, computed anew when it is not."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from dsal.backbones import Backbone
from dsal.backbones.extraction import add_statistics, extract_dataset
from dsal.backbones.feature_cache import cache_folder, cached_features
from dsal.data import DataSet, FeatureSet, ImageData
from dsal.data.dataset import fingerprint


def get(backbone: Backbone, dataset: DataSet, folder: Path, features: str | None = None) -> tuple[FeatureSet, bool]:
    """(features, whether the backbone had to run)."""
    calls: list[tuple[int, int]] = []
    found = cached_features(backbone, dataset, features=features, folder=folder, progress=lambda *c: calls.append(c))
    return found, bool(calls)


def entry(folder: Path) -> Path:
    (only,) = folder.iterdir()
    return only


def test_the_second_time_nothing_runs(backbone: Backbone, dataset: DataSet, tmp_path: Path) -> None:
    direct = extract_dataset(backbone, dataset)
    for expected_run in (True, False):
        found, ran = get(backbone, dataset, tmp_path / "new" / "cache")
        assert ran is expected_run
        assert found.fingerprint == direct.fingerprint
        assert np.array_equal(found.train_x, direct.train_x)
        assert np.array_equal(found.test_x, direct.test_x)
        assert isinstance(found.train_x, np.memmap)
        assert not found.train_x.flags.writeable
        assert found.train_x.dtype == np.float32
        assert found.backbone == direct.backbone
    assert {p.name for p in entry(tmp_path / "new" / "cache").iterdir()} == {"entry.json", "test.npy", "train.npy"}


def test_a_narrower_kind_comes_from_the_entry_of_a_wider_one(
    backbone: Backbone, dataset: DataSet, tmp_path: Path
) -> None:
    whole, _ = get(backbone, dataset, tmp_path)
    assert whole.kind == "stages"  # the weights bring no more
    last, ran = get(backbone, dataset, tmp_path, "last")
    assert not ran
    assert np.array_equal(last.train_x, whole.train_x[:, -64:])
    _, ran = get(backbone, dataset, tmp_path / "other", "last")
    assert ran
    wide = add_statistics(backbone, dataset)
    for expected_run in (True, False):
        found, ran = get(wide, dataset, tmp_path / "wide", "stages" if expected_run else "last")
        assert ran is expected_run
    found, ran = get(wide, dataset, tmp_path / "wide")  # wider than what is there
    assert ran
    assert found.kind == "blocks"


def test_other_weights_statistics_preprocessing_or_data_are_other_entries(
    backbone: Backbone, dataset: DataSet, tmp_path: Path
) -> None:
    seen = {get(backbone, dataset, tmp_path)[0].fingerprint}
    mirrored = ImageData(dataset.train.images.flip(3), dataset.train.labels)
    other_data = replace(dataset, train=mirrored, fingerprint=fingerprint(mirrored, dataset.test))
    found, ran = get(backbone, other_data, tmp_path)
    assert ran
    seen.add(found.fingerprint)
    with torch.no_grad():
        backbone.network.conv1.weight[0, 0, 0, 0] += 0.1
    found, ran = get(backbone, dataset, tmp_path)
    assert ran
    seen.add(found.fingerprint)
    backbone.feature_std[0] *= 2
    found, ran = get(backbone, dataset, tmp_path)
    assert ran
    seen.add(found.fingerprint)
    other = Backbone(replace(backbone.card, mean=(0.5,)))
    other.load_state_dict(backbone.state_dict())
    found, ran = get(other, dataset, tmp_path)
    assert ran
    seen.add(found.fingerprint)
    assert len(seen) == len(list(tmp_path.iterdir())) == 5


def test_seen_classes_and_history_are_not_part_of_the_key(backbone: Backbone, dataset: DataSet, tmp_path: Path) -> None:
    """They do not change the features, and the record that comes back is always of the backbone at hand."""
    get(backbone, dataset, tmp_path)
    backbone.card = replace(backbone.card, seen_classes=(0,), training={})
    found, ran = get(backbone, dataset, tmp_path)
    assert not ran
    assert found.backbone["seen_classes"] == [0]


def tear(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-100])


def flip_a_bit(path: Path) -> None:
    raw = bytearray(path.read_bytes())
    raw[-5] ^= 1
    path.write_bytes(raw)


def empty(path: Path) -> None:
    path.write_bytes(b"")


def other_shape(path: Path) -> None:
    np.save(path, np.zeros((3, 112), np.float32))


def other_type(path: Path) -> None:
    np.save(path, np.load(path).astype(np.float64))


@pytest.mark.parametrize("damage", [tear, flip_a_bit, empty, other_shape, other_type, Path.unlink])
@pytest.mark.parametrize("part", ["train.npy", "test.npy"])
def test_damage_is_noticed_and_mended(backbone: Backbone, dataset: DataSet, tmp_path: Path, damage, part: str) -> None:
    good, _ = get(backbone, dataset, tmp_path)
    expected = good.train_x.tobytes() + good.test_x.tobytes()
    damage(entry(tmp_path) / part)
    for ran_expected in (True, False):
        found, ran = get(backbone, dataset, tmp_path)
        assert ran is ran_expected
        assert found.train_x.tobytes() + found.test_x.tobytes() == expected


@pytest.mark.parametrize("text", ["", "{}", "[1]", '{"key": 1, "fingerprint": 2}', None])
def test_a_record_that_does_not_fit_is_not_believed(
    backbone: Backbone, dataset: DataSet, tmp_path: Path, text: str | None
) -> None:
    get(backbone, dataset, tmp_path)
    record = entry(tmp_path) / "entry.json"
    if text is None:
        record.unlink()
    else:
        record.write_text(text)
    assert get(backbone, dataset, tmp_path)[1]
    assert not get(backbone, dataset, tmp_path)[1]


def test_an_entry_under_another_key_is_not_believed(backbone: Backbone, dataset: DataSet, tmp_path: Path) -> None:
    get(backbone, dataset, tmp_path / "a")
    foreign = entry(tmp_path / "a")
    with torch.no_grad():
        backbone.network.conv1.weight.mul_(2)
    right, _ = get(backbone, dataset, tmp_path / "b")
    place = entry(tmp_path / "b")
    shutil.rmtree(place)
    shutil.copytree(foreign, place)
    assert json.loads((place / "entry.json").read_text())["fingerprint"] != right.fingerprint
    found, ran = get(backbone, dataset, tmp_path / "b")
    assert ran
    assert found.fingerprint == right.fingerprint


def test_the_default_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("DSAL_CACHE", str(tmp_path))
    assert cache_folder() == tmp_path / "features"
    monkeypatch.delenv("DSAL_CACHE")
    monkeypatch.setenv("HOME", "/home/someone")
    assert cache_folder() == Path("/home/someone/.cache/dsal/features")
