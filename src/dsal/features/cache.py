"""Features kept on disk, found again by the content of the weights and of the data.

An entry is a folder named after its key, with ``train.npy``, ``test.npy`` (float32, memory-mapped when used) and
``entry.json``, written last. An entry that is torn, damaged or not what its name says is computed anew.
"""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dsal.backbones.backbone import Backbone
from dsal.data.dataset import DataSet, Progress
from dsal.data.features import FeatureSet
from dsal.distributed import current
from dsal.features.extract import extract_dataset, feature_set
from dsal.store import atomic_write

_FORMAT = 1


def cached_features(
    backbone: Backbone,
    dataset: DataSet,
    *,
    features: str = "all",
    folder: Path | None = None,
    batch_size: int = 256,
    progress: Progress | None = None,
) -> FeatureSet:
    """Features of a data set, from the cache where it has them, else through the backbone and into the cache.

    The cache holds all stages, of which the last is a slice: both choices of ``features`` share one entry.

    Args:
        backbone: runs where its weights are.
        dataset: its images, both parts.
        features: ``"all"`` stages side by side, or the ``"last"`` stage alone.
        folder: the cache; :func:`cache_folder` by default.
        batch_size: images at a time.
        progress: called with (images done, images in all); not at all where the cache has everything.
    """
    key = _key(backbone, dataset)
    entry = (cache_folder() if folder is None else folder) / _name(key)
    team = current()
    found = _read(entry, key, backbone, dataset)
    if not all(team.gathered(found is not None)) or found is None:  # all extract, or none
        extracted = extract_dataset(backbone, dataset, batch_size=batch_size, progress=progress)
        with team.leader_first():
            if team.leads:
                _write(entry, key, extracted)
            found = _read(entry, key, backbone, dataset)
        if found is None and team.leads:
            raise OSError(f"{entry} cannot be read back after it was written: is the disk damaged or full?")
        return (found or extracted).select(features)  # the latter on a machine that does not see the disk of rank 0
    return found.select(features)


def cache_folder() -> Path:
    """``features`` under the environment variable ``DSAL_CACHE``, else under ``~/.cache/dsal``."""
    return Path(os.environ.get("DSAL_CACHE") or Path.home() / ".cache" / "dsal").expanduser() / "features"


def _key(backbone: Backbone, dataset: DataSet) -> dict[str, Any]:
    """Everything the features depend on; the backbone's fingerprint covers weights and preprocessing."""
    return {"format": _FORMAT, "backbone": backbone.fingerprint(), "data": dataset.fingerprint, "features": "all"}


def _name(key: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()


def _write(entry: Path, key: dict[str, Any], features: FeatureSet) -> None:
    entry.mkdir(parents=True, exist_ok=True)
    for name, part in (("train", features.train_x), ("test", features.test_x)):
        with atomic_write(entry / f"{name}.npy") as temporary, temporary.open("wb") as file:
            np.save(file, part)
    with atomic_write(entry / "entry.json") as temporary:
        temporary.write_text(json.dumps({"key": key, "fingerprint": features.fingerprint}, indent=1))


def _read(entry: Path, key: dict[str, Any], backbone: Backbone, dataset: DataSet) -> FeatureSet | None:
    """The entry, checked against its sha256; None where there is none that can be used."""
    try:
        record = json.loads((entry / "entry.json").read_text())
        features = feature_set(backbone, dataset, _map(entry / "train.npy"), _map(entry / "test.npy"))
    except (OSError, ValueError):  # absent, torn, of another shape
        return None
    return features if record == {"key": key, "fingerprint": features.fingerprint} else None


def _map(path: Path) -> NDArray[np.float32]:
    array: NDArray[np.float32] = np.lib.format.open_memmap(path, mode="r")
    return array
