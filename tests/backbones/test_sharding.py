"""Features in shards: the same numbers as in memory, the same bytes however often the extraction was killed."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.protocol.same import comparable

from dsal.backbones import Backbone
from dsal.backbones.extraction import extract_dataset, extract_shards
from dsal.data import DataSet, FeatureSet, Scenario, save_features
from dsal.data.features.shards import INDEX, read_shards, shard_digest, write_index, write_shard
from dsal.data.samples import MappedRows
from dsal.errors import FileFormatError, InputError
from dsal.methods import METHODS
from dsal.protocol.experiment import Experiment, prepare
from dsal.protocol.phases import run_phases
from dsal.protocol.results import read_results
from dsal.protocol.runs import run_experiment


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def extracted(backbone: Backbone, dataset: DataSet, folder: Path, **options: Any) -> FeatureSet:
    return extract_shards(backbone, dataset, folder, batch_size=4, shard_rows=8, **options)


def sharded(data: FeatureSet, folder: Path, rows: int) -> FeatureSet:
    """The same features in shards, exactly."""
    folder.mkdir()
    digests: dict[str, list[str]] = {"train": [], "test": []}
    for part, x in (("train", data.train_x), ("test", data.test_x)):
        for number, start in enumerate(range(0, len(x), rows)):
            some = x[start : start + rows]
            write_shard(folder, part, number, some, made="0", start=start, exact=True)
            size = {"rows": len(some), "width": some.shape[1]}
            digests[part].append(shard_digest(folder, part, number, made="0", start=start, **size))
    facts = {
        "name": data.name,
        "class_names": list(data.class_names),
        "widths": list(data.widths.items()),
        "backbone": data.backbone,
        "dataset": data.dataset,
    }
    labels = {"train": data.train_y, "test": data.test_y}
    write_index(folder, labels, digests, facts, made="0", shard_rows=rows)
    return read_shards(folder)


def test_shards_hold_the_features_of_the_data_set(backbone: Backbone, dataset: DataSet, tmp_path: Path) -> None:
    calls: list[tuple[int, int]] = []
    exact = extracted(backbone, dataset, tmp_path / "exact", exact=True, progress=lambda *c: calls.append(c))
    whole = extract_dataset(backbone, dataset, batch_size=4, name="exact")
    assert calls[-1] == (24, 24)
    np.testing.assert_array_equal(np.asarray(exact.train_x), whole.train_x)
    np.testing.assert_array_equal(np.asarray(exact.select("last").test_x), whole.select("last").test_x)
    assert exact.train_y.tolist() == whole.train_y.tolist()
    for name in ("name", "class_names", "widths", "backbone", "dataset"):
        assert getattr(exact, name) == getattr(whole, name)
    half = extracted(backbone, dataset, tmp_path / "half")
    np.testing.assert_array_equal(np.asarray(half.train_x), whole.train_x.astype(np.float16).astype(np.float32))
    assert sorted(contents(tmp_path / "half")) == [
        INDEX,
        "test-00000.safetensors",
        *(f"train-0000{number}.safetensors" for number in range(3)),
    ]
    assert half.fingerprint != exact.fingerprint == read_shards(tmp_path / "exact").fingerprint


@pytest.mark.parametrize("stop", [1, 2, 3, 5, 6])
def test_stopped_anywhere_and_called_again(backbone: Backbone, dataset: DataSet, tmp_path: Path, stop: int) -> None:
    extracted(backbone, dataset, tmp_path / "unbroken")
    folder, batches = tmp_path / "unbroken2" / "unbroken", 0

    def killed(*_: Any) -> None:
        nonlocal batches
        batches += 1
        if batches == stop:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        extracted(backbone, dataset, folder, progress=killed)
    before = contents(folder)
    assert INDEX not in before
    with pytest.raises(FileNotFoundError, match="Run it again"):
        read_shards(folder)
    extracted(backbone, dataset, folder)
    after = contents(folder)
    assert after == contents(tmp_path / "unbroken")
    assert before.items() <= after.items()  # what was there was not written again
    extracted(backbone, dataset, folder, progress=lambda *_: pytest.fail("extracted again"))


def test_other_weights_or_images_are_refused(backbone: Backbone, dataset: DataSet, tmp_path: Path) -> None:
    extracted(backbone, dataset, tmp_path)
    with pytest.raises(InputError, match="other weights"):
        extracted(backbone, dataset, tmp_path, features="last")
    (tmp_path / INDEX).unlink()
    backbone.feature_mean += 1
    with pytest.raises(InputError, match=r"train-00000.safetensors holds features of other images"):
        extracted(backbone, dataset, tmp_path)


def _truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-2])


def _flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(bytes(content))


def _swap(path: Path) -> None:
    path.write_bytes(path.with_name("train-00000.safetensors").read_bytes())


@pytest.mark.parametrize("damage", [_truncate, _flip, _swap, Path.unlink])
def test_a_damaged_shard_is_named(
    backbone: Backbone, dataset: DataSet, tmp_path: Path, damage: Callable[[Path], None]
) -> None:
    extracted(backbone, dataset, tmp_path)
    damage(tmp_path / "train-00001.safetensors")
    with pytest.raises(FileFormatError, match=r"train-00001.safetensors"):
        read_shards(tmp_path)


@pytest.mark.parametrize(
    "rows",
    [slice(None), slice(3, 19), slice(None, None, 7), slice(40, 2), np.array([16, 2, 2, 9]), np.arange(4, 12)],
)
def test_rows_across_shards(rows: Any) -> None:
    whole = np.random.default_rng(0).normal(size=(17, 5)).astype(np.float16)
    x = MappedRows(tuple(np.split(whole, [5, 10, 15])), 5, 17, 5)
    expected = whole.astype(np.float32)[rows]
    np.testing.assert_array_equal(x[rows], expected)
    np.testing.assert_array_equal(np.asarray(x.take(rows).from_column(2)), expected[:, 2:])
    np.testing.assert_array_equal(x.take(np.arange(16, -1, -1))[rows], whole[::-1][rows])
    mask = np.arange(17) % 3 == 0
    np.testing.assert_array_equal(x[mask], whole[mask])
    with pytest.raises(IndexError, match="from 0 to 16"):
        x[np.array([17])]


@pytest.mark.parametrize("method", ["ds-al", "gkeal", "ncm"])
def test_methods_learn_from_shards_what_they_learn_from_memory(sample: FeatureSet, tmp_path: Path, method: str) -> None:
    few = sample.keep(torch.arange(0, len(sample.train_y), 5))
    scenario = Scenario.deal(100, phases=5, order="1993")
    options = {"expansion_size": 64} if method in ("ds-al", "gkeal") else {}
    shards = sharded(few, tmp_path / "shards", 333)
    assert isinstance(shards.train_x, MappedRows)
    both = [
        [result.tally.hits for result in run_phases(METHODS.get(method)(**options), data, scenario)]
        for data in (few, shards)
    ]
    for memory, disk in zip(*both, strict=True):
        np.testing.assert_array_equal(memory, disk)


def test_a_run_on_shards(backbone: Backbone, dataset: DataSet, tmp_path: Path) -> None:
    one, many = tmp_path / "one.safetensors", tmp_path / "one"
    save_features(one, extract_dataset(backbone, dataset, batch_size=4, name="one"))
    extracted(backbone, dataset, many)
    documents = []
    for number, data in enumerate((one, many)):
        experiment = Experiment(dataset=str(data), phases=3, shots=2, features="last", options={"expansion_size": 16})
        list(run_experiment(prepare(experiment, lambda *_: None), tmp_path / str(number)))
        document = comparable(read_results(tmp_path / str(number)))
        del document["config"]["dataset"], document["provenance"]["data_sha256"]
        documents.append(document)
    assert documents[0] == documents[1]
