"""``ImageFeatures``: a backbone as the first step of a scikit-learn pipeline."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, TransformerMixin
from torch import nn

from dsal.backbones.backbone import Backbone
from dsal.backbones.hub import DEFAULT, as_backbone
from dsal.images.reading import read_features


class ImageFeatures(TransformerMixin, BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """Paths of image files to features: ``make_pipeline(ImageFeatures(), DSALClassifier())``.

    It has nothing to fit: the backbone is frozen.

    Args:
        backbone: a name (see ``dsal.backbones.hub``), a backbone, or any ``nn.Module``.
        batch_size: images at a time; None for what suits the device.
    """

    def __init__(self, backbone: str | Backbone | nn.Module = DEFAULT, batch_size: int | None = None) -> None:
        self.backbone = backbone
        self.batch_size = batch_size

    def fit(self, X: Any = None, y: Any = None) -> ImageFeatures:
        """Open the backbone; the arguments are there for the pipeline's sake."""
        self.backbone_ = as_backbone(self.backbone)
        return self

    def transform(self, X: Sequence[str | Path]) -> NDArray[np.float32]:
        """Features (n, d) of n image files; one that cannot be read raises :class:`~dsal.FileFormatError`."""
        if not hasattr(self, "backbone_"):
            self.fit()
        return read_features(self.backbone_, [Path(path) for path in X], batch_size=self.batch_size).x
