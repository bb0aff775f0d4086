"""Features made elsewhere: every layout gives the same set, and what is wrong with a file is said in one line."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from dsal.data.features.feature_set import FeatureSet
from dsal.data.features.tables import read_table
from dsal.errors import FileFormatError, InputError
from dsal.protocol.experiment import Experiment, prepare
from dsal.protocol.phases import run_phases

Arrays = dict[str, Any]
NAMES = np.array(["bee", "ant", "cat", "eel"])


@pytest.fixture
def arrays() -> Arrays:
    random = np.random.default_rng(0)
    y = random.permutation(np.repeat(np.arange(4), 8))
    x = random.standard_normal((32, 6)) + 3 * np.eye(4, 6)[y]
    return {"train_x": x[:20], "train_y": NAMES[y[:20]], "test_x": x[20:], "test_y": NAMES[y[20:]]}


def npz(path: Path, arrays: Arrays) -> Path:
    np.savez(path / "f.npz", **arrays)
    return path / "f.npz"


def packed(path: Path, arrays: Arrays) -> Path:
    np.savez_compressed(path / "F.NPZ.tmp", **arrays)
    return (path / "F.NPZ.tmp.npz").rename(path / "f.NPZ")


def folder(path: Path, arrays: Arrays) -> Path:
    (path / "f").mkdir()
    for name, array in arrays.items():
        np.save(path / "f" / f"{name}.npy", np.asfortranarray(array))
    return path / "f"


def table(arrays: Arrays) -> dict[str, Any]:
    split = ["train"] * len(arrays["train_x"]) + ["test"] * len(arrays["test_x"])
    return {"split": split, "label": np.concatenate([arrays["train_y"], arrays["test_y"]]).tolist()}


def lists(path: Path, arrays: Arrays) -> Path:
    rows = np.concatenate([arrays["train_x"], arrays["test_x"]]).tolist()
    parquet.write_table(pa.table({"features": rows, **table(arrays)}), path / "f.parquet", row_group_size=7)
    return path / "f.parquet"


def columns(path: Path, arrays: Arrays) -> Path:
    rows = np.concatenate([arrays["train_x"], arrays["test_x"]])
    some = {f"c{9 - k}": rows[:, k] for k in range(6)}  # their order counts, not their names
    parquet.write_table(pa.table({**some, **table(arrays)}), path / "f.parquet")
    return path / "f.parquet"


def same(found: FeatureSet, arrays: Arrays) -> None:
    assert found.class_names == ("ant", "bee", "cat", "eel")
    for part in ("train", "test"):
        assert np.array_equal(getattr(found, f"{part}_x"), np.float32(arrays[f"{part}_x"]))
        labels = np.array(found.class_names)[getattr(found, f"{part}_y")]
        assert labels.tolist() == arrays[f"{part}_y"].tolist()


@pytest.mark.parametrize("write", [npz, packed, folder, lists, columns])
def test_every_layout(write: Callable[[Path, Arrays], Path], arrays: Arrays, tmp_path: Path) -> None:
    path = write(tmp_path, arrays)
    same(read_table(path), arrays)
    experiment = Experiment(dataset=str(path), phases=2, options={"expansion_size": 64})
    setting = prepare(experiment, lambda *_: None)
    assert setting.origin == "unknown"
    *_, last = run_phases(experiment.build_method(0), setting.data, setting.scenario)
    assert last.tally.hits.sum() > 6  # of 12: the classes are far apart


def test_numbers_as_labels(arrays: Arrays, tmp_path: Path) -> None:
    numbers = {"ant": -2, "bee": 7, "cat": 10, "eel": 100}
    for part in ("train_y", "test_y"):
        arrays[part] = np.array([numbers[label] for label in arrays[part]], np.int16)
    for write in (npz, lists):
        found = read_table(write(tmp_path, arrays))
        assert found.class_names == ("-2", "7", "10", "100")
        assert np.array_equal(np.array([-2, 7, 10, 100])[found.test_y], arrays["test_y"])


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"train_x": np.zeros(20)}, "train_x of .* must be numbers of shape"),
        ({"train_x": np.full((20, 6), "a")}, "train_x of .* must be numbers of shape"),
        ({"test_x": np.full((12, 6), np.nan)}, "not finite"),
        ({"test_x": np.full((12, 6), 1e39)}, "not finite"),
        ({"test_x": np.zeros((12, 5))}, "6 features in train_x and 5 in test_x"),
        ({"test_y": NAMES[:3]}, "12 rows of test_x and 3 labels"),
        ({"test_y": np.zeros(12)}, "whole numbers or text"),
        ({"test_y": np.zeros(12, int)}, "labels of one part are numbers"),
        ({"test_y": np.array(["zebra"] * 12)}, "only in the test part: zebra"),
        ({"test_y": np.array([{}] * 12, dtype=object)}, "Python objects"),
    ],
)
def test_wrong_arrays(change: Arrays, reason: str, arrays: Arrays, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=reason):
        read_table(npz(tmp_path, {**arrays, **change}))


def test_missing_parts(arrays: Arrays, tmp_path: Path) -> None:
    del arrays["test_y"]
    with pytest.raises(InputError, match="has no test_y: expected train_x"):
        read_table(npz(tmp_path, arrays))
    with pytest.raises(FileNotFoundError, match=r"has no test_y\.npy: expected train_x\.npy"):
        read_table(folder(tmp_path, arrays))
    with pytest.raises(FileNotFoundError):
        read_table(tmp_path / "nowhere.npz")


@pytest.mark.parametrize("write", [npz, packed, folder, lists])
def test_damaged_files(write: Callable[[Path, Arrays], Path], arrays: Arrays, tmp_path: Path) -> None:
    path = write(tmp_path, arrays)
    file = path / "train_x.npy" if path.is_dir() else path
    content = file.read_bytes()
    for damaged in (b"", b"nonsense", content[:-9], content[:90], content.replace(b"(20, 6)", b"(2**60,)")):
        file.write_bytes(damaged)
        if damaged != content:
            with pytest.raises((FileFormatError, InputError)):
                read_table(path)


@pytest.mark.parametrize(
    ("columns", "reason"),
    [
        ({"split": ["train", "test"], "x": [1.0, 2.0]}, "must have the columns label and split"),
        ({"split": ["train", "dev"], "label": [1, 1], "x": [1.0, 2.0]}, "split must be train or test, got dev"),
        ({"split": ["train", "test"], "label": [1, 1]}, "has no features"),
        ({"split": ["train", "test"], "label": [1, 1], "x": ["a", "b"]}, "must hold numbers, but x does not"),
        ({"split": ["train", "test"], "label": [1, 1], "x": [1.0, None]}, "x has nulls"),
        ({"split": ["train", "test"], "label": [1, None], "x": [1.0, 2.0]}, "whole numbers or text, in every row"),
        ({"split": ["train", "test"], "label": [1.5, 1.5], "x": [1.0, 2.0]}, "whole numbers or text, in every row"),
        ({"split": ["train", "test"], "label": [1, 1], "features": [[1.0], [1.0, 2.0]]}, "all of the same length"),
        ({"split": ["train", "test"], "label": [1, 1], "features": [[1.0], None]}, "all of the same length"),
        ({"split": ["train", "test"], "label": [1, 1], "features": [[1.0], [None]]}, "features has nulls"),
        ({"split": ["train", "test"], "label": [1, 1], "features": [1.0, 2.0]}, "features must be lists"),
    ],
)
def test_wrong_parquet(columns: Arrays, reason: str, tmp_path: Path) -> None:
    parquet.write_table(pa.table(columns), tmp_path / "f.parquet")
    with pytest.raises(InputError, match=reason):
        read_table(tmp_path / "f.parquet")
