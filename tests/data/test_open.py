"""Data by name: what ships, files, folders of shards, tables, data sets of images."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from dsal.data import DATASETS, feature_set_names, holds_images, load_dataset, load_features
from dsal.data.features.shards import shard_digest, write_index, write_shard
from dsal.errors import UnknownNameError


def shards(folder: Path) -> Path:
    folder.mkdir()
    x, labels = (
        np.arange(12, dtype=np.float32).reshape(4, 3),
        {"train": np.array([0, 1, 0, 1]), "test": np.zeros(0, int)},
    )
    write_shard(folder, "train", 0, x, made="m", start=0)
    digest = shard_digest(folder, "train", 0, made="m", start=0, rows=4, width=3)
    facts = {"name": "few", "class_names": ["a", "b"], "widths": [["last", 3]], "backbone": {}, "dataset": None}
    write_index(folder, labels, {"train": [str(digest)], "test": []}, facts, made="m", shard_rows=4)
    return folder


def arrays(folder: Path) -> Path:
    folder.mkdir()
    for part in ("train", "test"):
        np.save(folder / f"{part}_x.npy", np.eye(4, dtype=np.float32))
        np.save(folder / f"{part}_y.npy", np.array([0, 1, 0, 1]))
    return folder


def images(folder: Path) -> Path:
    for name in ("cat", "dog"):
        (folder / name).mkdir(parents=True)
        for number in range(4):
            Image.new("RGB", (8, 8), (60 * number, 0, 0)).save(folder / name / f"{number}.png")
    return folder


def test_features_are_found_in_every_form(sample_file: Path, tmp_path: Path) -> None:
    assert len(load_features(str(sample_file)).train_y) == 2000
    assert load_features(str(shards(tmp_path / "shards"))).train_x.shape == (4, 3)
    assert load_features(str(arrays(tmp_path / "arrays"))).train_x.shape == (4, 4)
    narrow = load_features("omniglot-features", "last")
    assert (narrow.kind, narrow.train_x.shape[1]) == ("last", 64)


def test_images_are_told_from_features(sample_file: Path, tmp_path: Path) -> None:
    assert all(holds_images(name) for name in DATASETS.names())
    assert not any(holds_images(name) for name in (*feature_set_names(), str(sample_file), "nowhere"))
    assert not holds_images(str(shards(tmp_path / "shards")))
    assert not holds_images(str(arrays(tmp_path / "arrays")))
    folder = images(tmp_path / "pets")
    assert holds_images(str(folder))
    assert load_dataset(str(folder)).class_names == ("cat", "dog")


def test_an_unknown_name_lists_what_there_is() -> None:
    with pytest.raises(UnknownNameError) as caught:
        load_features("cifar1000-features")
    assert set(caught.value.valid) == {*feature_set_names(), *DATASETS.names()}
