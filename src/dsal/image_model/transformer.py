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
from dsal.image_model.reading import read_features


class ImageFeatures(TransformerMixin, BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """Turn paths of image files into features: ``make_pipeline(ImageFeatures(), DSALClassifier())``.

    There is nothing to fit: the backbone is frozen.

    Args:
        backbone: a name (see ``dsal.backbones.hub``), a backbone, or any ``nn.Module``.
        batch_size: images per batch; None for a size that suits the device.
    """

    def __init__(self, backbone: str | Backbone | nn.Module = DEFAULT, batch_size: int | None = None) -> None:
        self.backbone = backbone
        self.batch_size = batch_size

    def fit(self, X: Any = None, y: Any = None) -> ImageFeatures:
        """Load the backbone; the arguments are ignored."""
        self.backbone_ = as_backbone(self.backbone)
        return self

    def transform(self, X: Sequence[str | Path]) -> NDArray[np.float32]:
        """Return features (n, d) of n image files; raise :class:`~dsal.FileFormatError` if one cannot be read."""
        if not hasattr(self, "backbone_"):
            self.fit()
        return read_features(self.backbone_, [Path(path) for path in X], batch_size=self.batch_size).x
