"""Features of images by a backbone, in ONNX Runtime or PyTorch; and ``ImageFeatures``, the same for pipelines."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from os import cpu_count
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from sklearn.base import BaseEstimator, TransformerMixin
from torch import nn

from dsal.backbones.backbone import Backbone
from dsal.backbones.pretrained import DEFAULT, as_backbone
from dsal.data.images.decode import ImageSource, checked_source
from dsal.distributed import ALONE, Team
from dsal.errors import InputError
from dsal.image_model.graph_features import (
    FeatureSource,
    GraphFeatures,
    ImageBatch,
    Known,
    decode_rows,
    graph_of,
    in_threads,
)


@dataclass(frozen=True, eq=False)
class BackboneFeatures(FeatureSource):
    """Features by a backbone, which runs on the device of its weights.

    Attributes:
        backbone: maps images to features.
        team: the processes that extract features together.
        batch_size: images per batch in PyTorch; by default 8 on a CPU, whose caches hold no more, and 64 elsewhere.
        workers: number of threads; by default the number of processors, or half of it if PyTorch runs on the CPU.
    """

    backbone: Backbone
    team: Team = ALONE
    batch_size: int | None = None
    workers: int | None = None

    @property
    def _width(self) -> int:
        return self.backbone.widths["stages"]

    @property
    def _on_cpu(self) -> bool:
        return self.backbone.feature_mean.device.type == "cpu"

    @property
    def _batch(self) -> int:
        return (8 if self._on_cpu else 64) if self.batch_size is None else self.batch_size

    def _stream(
        self, images: Sequence[ImageSource], broken: str, known: Known | None, total: int
    ) -> Iterator[ImageBatch]:
        card = self.backbone.card
        graph = graph_of(self.backbone, total * card.size**2)
        if graph is not None:
            source = GraphFeatures(graph, card.size, card.in_channels, self.workers)
            yield from source.stream(images, broken=broken, known=known)
            return

        def decode(rows: range) -> ImageBatch:
            return decode_rows(images, rows, card.size, card.in_channels, broken, known)

        workers = max((cpu_count() or 1) // 2, 1) if self.workers is None and self._on_cpu else self.workers
        for batch in in_threads(decode, len(images), self._batch, workers):
            x = np.empty((0, self._width), np.float32)
            if batch.rows:
                x = self.backbone.extract(torch.from_numpy(batch.x)).cpu().numpy()
            yield batch._replace(x=x)


class ImageFeatures(TransformerMixin, BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """Turn images into features: ``make_pipeline(ImageFeatures(), DSALClassifier(gamma=100))``.

    There is nothing to fit: the backbone is frozen.

    Args:
        backbone: a name (see ``dsal.backbones.pretrained``), a backbone, or any ``nn.Module``.
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
