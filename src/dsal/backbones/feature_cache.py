"""Cache of features on disk, keyed by the content of the weights and of the data.

An entry is a folder named after its key, with ``train.npy``, ``test.npy`` (float32, memory-mapped when used) and
``entry.json``, written last. An entry that is truncated, corrupt or does not match its name is computed again.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np

from dsal.backbones.backbone import Backbone
from dsal.backbones.extraction import extract_dataset, feature_set, with_statistics
from dsal.base.options import user_folder
from dsal.base.progress import OnProgress
from dsal.data.dataset import DataSet
from dsal.data.features.feature_set import FeatureSet
from dsal.distributed import ALONE, Team
from dsal.files.atomic import atomic_write
from dsal.files.schema import write_json

_FORMAT = 1


def cached_features(
    backbone: Backbone,
    dataset: DataSet,
    *,
    features: str | None = None,
    folder: Path | None = None,
    progress: OnProgress | None = None,
    team: Team = ALONE,
) -> FeatureSet:
    """Return the features of a data set from the cache; if it lacks them, extract and cache them.

    A narrower kind of features is also taken from the entry of a wider one.

    Args:
        backbone: runs on the device of its weights.
        dataset: the images, both parts.
        features: kind of features; by default the widest that the weights have statistics for.
        folder: the cache; :func:`cache_folder` by default.
        progress: called with (images done, images in all); not called if everything is cached.
        team: the processes that share the work.
    """
    backbone, features = with_statistics(backbone, dataset, features)
    folder = cache_folder() if folder is None else folder
    wide_enough = backbone.kinds[backbone.kinds.index(features) :]
    found = next(filter(None, (_read(folder, backbone, dataset, kind) for kind in wide_enough)), None)
    if not all(team.gathered(found is not None)) or found is None:  # all extract, or none
        extracted = extract_dataset(backbone, dataset, features=features, progress=progress, team=team)
        with team.leader_first():
            if team.leads:
                _write(folder, backbone, dataset, extracted)
            found = _read(folder, backbone, dataset, features)
        if found is None and team.leads:
            raise OSError(f"features cannot be read back after they were written to {folder}: is the disk damaged?")
        return found or extracted  # the latter on a machine that does not see the disk of rank 0
    return found.select(features)


def cache_folder() -> Path:
    """Return ``features`` under the environment variable ``DSAL_CACHE``, else under ``~/.cache/dsal``."""
    return user_folder("DSAL_CACHE") / "features"


def _entry(folder: Path, backbone: Backbone, dataset: DataSet, kind: str) -> tuple[Path, dict[str, Any]]:
    """Return folder and key of an entry: all that the features depend on (the fingerprint covers preprocessing)."""
    key = {"format": _FORMAT, "backbone": backbone.fingerprint(kind), "data": dataset.fingerprint, "features": kind}
    return folder / hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest(), key


def _write(folder: Path, backbone: Backbone, dataset: DataSet, features: FeatureSet) -> None:
    entry, key = _entry(folder, backbone, dataset, features.kind)
    entry.mkdir(parents=True, exist_ok=True)
    for name, part in (("train", features.train_x), ("test", features.test_x)):
        with atomic_write(entry / f"{name}.npy") as temporary, temporary.open("wb") as file:
            np.save(file, part)
    write_json(entry / "entry.json", {"key": key, "fingerprint": features.fingerprint})


def _read(folder: Path, backbone: Backbone, dataset: DataSet, kind: str) -> FeatureSet | None:
    """Read an entry and check its sha256; return None if there is no usable one."""
    entry, key = _entry(folder, backbone, dataset, kind)
    try:
        record = json.loads((entry / "entry.json").read_text())
        train, test = (np.lib.format.open_memmap(entry / f"{part}.npy", mode="r") for part in ("train", "test"))
        features = feature_set(backbone, dataset, kind, train, test)
    except (OSError, ValueError):  # absent, truncated, of another shape
        return None
    return features if record == {"key": key, "fingerprint": features.fingerprint} else None
