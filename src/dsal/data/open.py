"""Open data by name: a name that ships or is registered, a file, or a folder. The only place that decides what it is.

| name | what it is |
|---|---|
| ``cifar100-features`` and others that ship | features |
| ``FILE.safetensors``, a folder of shards | features that ``dsal extract`` wrote |
| ``FILE.npz``, ``FILE.parquet``, a folder of ``.npy`` | features made elsewhere (:mod:`dsal.data.features.tables`) |
| ``cifar100`` and others in the registry | images |
| any other folder | images, one folder for each class (:mod:`dsal.data.sets.class_folders`) |
"""

from __future__ import annotations

from pathlib import Path

from dsal.base.progress import OnProgress
from dsal.data.dataset import DATASETS, EMBEDDED, DataSet, data_root
from dsal.data.features.feature_set import FeatureSet, feature_set_names, read_features
from dsal.data.features.shards import is_sharded, read_shards
from dsal.data.features.tables import is_table, read_table
from dsal.data.sets import cifar, imagenet, omniglot  # noqa: F401  # they register their data sets
from dsal.errors import UnknownNameError


def holds_images(name: str) -> bool:
    """Return whether a name or folder stands for images, rather than features."""
    if name in DATASETS.names():
        return True
    folder = Path(name)
    return folder.is_dir() and not is_sharded(folder) and not any(folder.glob("*.npy"))


def load_features(name: str, features: str | None = None) -> FeatureSet:
    """Load a set of features by name, file or folder.

    Args:
        name: see above.
        features: kind of features; the widest by default.

    Raises:
        UnknownNameError: there is no such name, file or folder, or the set holds no such kind of features.
        FileNotFoundError: there is no such file.
        FileFormatError: the file is truncated or corrupt, changed, or holds something else.
    """
    path = Path(name)
    if name in feature_set_names():
        return read_features(EMBEDDED / f"{name}.safetensors", features)
    if path.suffix == ".safetensors":
        return read_features(path, features)
    if is_sharded(path):
        return read_shards(path, features)
    if is_table(path):
        return read_table(path).select(features)
    raise UnknownNameError("data set", name, (*feature_set_names(), *DATASETS.names()))


def load_dataset(
    name: str, root: Path | None = None, download: bool = False, progress: OnProgress | None = None
) -> DataSet:
    """Load a data set of images by name or folder.

    Args:
        name: see above.
        root: folder the data sets live in; by default the environment variable ``DSAL_DATA``, else ``~/.cache/dsal``.
        download: fetch the data set from its official address when it is not under ``root``.
        progress: called with (bytes so far, bytes in all) while downloading.

    Raises:
        UnknownNameError: no data set of that name.
        MissingDataError: the files are not under ``root``; the message says which file to put where.
        FileFormatError: a file is truncated or corrupt or is not what its name says.
    """
    if name not in DATASETS.names() and Path(name).is_dir():
        from dsal.data.sets.class_folders import load_class_folders

        return load_class_folders(Path(name))
    return DATASETS.get(name)(data_root() if root is None else Path(root), download, progress)
