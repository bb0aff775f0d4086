"""Omniglot (Lake et al., 2015): 1,623 handwritten characters of 50 alphabets, drawn by 20 people. Ships in the package.

Every character was drawn once by each of its alphabet's 20 drawers: drawers 1-15 are the training data, 16-20 the test.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from dsal.base.progress import OnProgress
from dsal.data.dataset import DATASETS, EMBEDDED, DataSet, fingerprint
from dsal.data.samples import ImageData

_LAST_TRAIN_DRAWER = 15


@DATASETS.register("omniglot")
def load_omniglot(root: Path, download: bool = False, progress: OnProgress | None = None) -> DataSet:
    """Load Omniglot at 28x28, black ink (0) on white (255), one channel: 24,345 + 8,115 images; needs no ``root``."""
    with np.load(EMBEDDED / "omniglot.npz", allow_pickle=False) as file:
        images = torch.from_numpy(file["images"]).unsqueeze(1)  # (N, 1, 28, 28)
        labels = torch.from_numpy(file["labels"].astype(np.int64))
        in_train = torch.from_numpy(file["drawers"] <= _LAST_TRAIN_DRAWER)
        names = tuple(file["class_names"].tolist())
    train = ImageData(images[in_train], labels[in_train])
    test = ImageData(images[~in_train], labels[~in_train])
    return DataSet("omniglot", train, test, names, fingerprint(train, test))
