"""Data sets of images and features, class orders and phases.

Names are imported on first use: reading image files needs none of them.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dsal.data.dataset import DATASETS, DataSet, data_root
    from dsal.data.features.feature_set import FeatureSet, feature_set_names, read_features, save_features
    from dsal.data.images.image_files import FileData
    from dsal.data.open import holds_images, load_dataset, load_features
    from dsal.data.samples import FeatureRows, ImageData, JoinedSamples, Samples
    from dsal.data.scenario import Scenario, class_order, split_phases

__all__ = [
    "DATASETS",
    "DataSet",
    "FeatureRows",
    "FeatureSet",
    "FileData",
    "ImageData",
    "JoinedSamples",
    "Samples",
    "Scenario",
    "class_order",
    "data_root",
    "feature_set_names",
    "holds_images",
    "load_dataset",
    "load_features",
    "read_features",
    "save_features",
    "split_phases",
]

_MODULES = {
    "dataset": ("DataSet", "data_root"),
    "features.feature_set": ("FeatureSet", "feature_set_names", "read_features", "save_features"),
    "images.image_files": ("FileData",),
    "open": ("DATASETS", "holds_images", "load_dataset", "load_features"),
    "samples": ("FeatureRows", "ImageData", "JoinedSamples", "Samples"),
    "scenario": ("Scenario", "class_order", "split_phases"),
}


def __getattr__(name: str) -> Any:
    for module, names in _MODULES.items():
        if name in names:
            return getattr(import_module(f"dsal.data.{module}"), name)
    raise AttributeError(f"module 'dsal.data' has no attribute {name!r}")
