"""Data sets of images and of features, class order and phases."""

from dsal.data import cifar  # noqa: F401  (registers its data sets)
from dsal.data.dataset import DATASETS, DataSet, ImageData, Progress, data_root, load_dataset

__all__ = ["DATASETS", "DataSet", "ImageData", "Progress", "data_root", "load_dataset"]
