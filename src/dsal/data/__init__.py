"""Data sets of images and of features, class order and phases."""

from dsal.data import cifar, imagenet, omniglot  # noqa: F401  (each registers its data sets)
from dsal.data.class_order import class_order
from dsal.data.dataset import DATASETS, DataSet, data_root, load_dataset
from dsal.data.features import FeatureSet, feature_set_names, load_features, read_features, save_features
from dsal.data.files import FileData
from dsal.data.samples import FeatureRows, ImageData, Samples
from dsal.data.scenario import Scenario, split_phases

__all__ = [
    "DATASETS",
    "DataSet",
    "FeatureRows",
    "FeatureSet",
    "FileData",
    "ImageData",
    "Samples",
    "Scenario",
    "class_order",
    "data_root",
    "feature_set_names",
    "load_dataset",
    "load_features",
    "read_features",
    "save_features",
    "split_phases",
]
