"""``ImageFeatures``: a backbone as the first step of a scikit-learn pipeline."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from sklearn.base import BaseEstimator, TransformerMixin
from torch import nn

from dsal.backbones.backbone import Backbone
from dsal.backbones.hub import DEFAULT, as_backbone
from dsal.data.images.decode import ImageSource, checked_source
from dsal.errors import InputError
from dsal.image_model.image_features import BackboneFeatures


class ImageFeatures(TransformerMixin, BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """Turn images into features: ``make_pipeline(ImageFeatures(), DSALClassifier(gamma=100))``.

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

    def transform(self, X: Sequence[str | Path | ImageSource] | NDArray[np.uint8]) -> NDArray[np.float32]:
        """Return features (n, d) of n images; raise :class:`~dsal.FileFormatError` if a file cannot be read.

        Args:
            X: images as in :meth:`ImageModel.predict`, in a list; or an array (n, h, w, 3) of n images.
        """
        if isinstance(X, (str, Path, bytes, Image.Image)) or (
            isinstance(X, np.ndarray) and X.dtype.kind == "u" and X.ndim < 4
        ):
            raise InputError("expected several images, got one: pass a list of images, even of one")
        if not hasattr(self, "backbone_"):
            self.fit()
        images = [checked_source(image) for image in X]
        return BackboneFeatures(self.backbone_, batch_size=self.batch_size).collect(images).x
