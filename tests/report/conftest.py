"""Finished runs on real data, as ``dsal run`` leaves them."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dsal.data import load_dataset
from dsal.data.features.feature_set import FeatureSet, save_features
from dsal.protocol.experiment import Experiment, prepare
from dsal.protocol.runs import run_experiment
from dsal.report.page import build_report


def _finished(out: Path, **options: Any) -> Path:
    setting = prepare(Experiment(**options), lambda *progress: None)
    for _ in run_experiment(setting, out):
        pass
    return out


@pytest.fixture(scope="session")
def runs(tmp_path_factory: pytest.TempPathFactory, sample_file: Path) -> dict[str, Path]:
    """CIFAR-100: two methods at K = 25 over two seeds, DS-AL at K = 5 with one seed."""
    root = tmp_path_factory.mktemp("runs")
    shared: dict[str, Any] = {"dataset": str(sample_file), "options": {"expansion_size": 64}}
    return {
        "ds-al": _finished(root / "first", method="ds-al", phases=25, seeds=(0, 1), **shared),
        "acil": _finished(root / "second", method="acil", phases=25, seeds=(0, 1), **shared),
        "k5": _finished(root / "third", method="ds-al", phases=5, seeds=(0,), **shared),
    }


@pytest.fixture(scope="session")
def report(runs: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of all three."""
    return build_report(list(runs.values()), tmp_path_factory.mktemp("report"))


@pytest.fixture(scope="session")
def omniglot_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All 1623 characters of Omniglot, from pixels averaged 4 x 4."""
    root = tmp_path_factory.mktemp("omniglot")
    data = load_dataset("omniglot")

    def pooled(images: Any) -> np.ndarray[Any, Any]:
        pixels = np.asarray(images, dtype=np.float32).reshape(-1, 7, 4, 7, 4)
        return pixels.mean(axis=(2, 4)).reshape(len(pixels), 49) / 255

    features = FeatureSet(
        name="omniglot-pixels",
        dataset="omniglot",
        train_x=pooled(data.train.images),
        train_y=np.asarray(data.train.labels),
        test_x=pooled(data.test.images),
        test_y=np.asarray(data.test.labels),
        class_names=data.class_names,
        fingerprint=data.fingerprint,
        widths={"last": 49},
        backbone={"architecture": "pixels", "seen_classes": None},
    )
    save_features(root / "pixels.safetensors", features)
    return _finished(root / "run", dataset=str(root / "pixels.safetensors"), phases=10, options={"expansion_size": 64})
