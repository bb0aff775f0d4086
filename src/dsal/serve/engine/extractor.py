"""Feature extraction for the server: by ONNX Runtime if available; predictions use PyTorch until it is ready."""

from __future__ import annotations

import threading

import numpy as np
import torch
from numpy.typing import NDArray

from dsal.backbones.backbone import Backbone
from dsal.data.images.decode import Pixels
from dsal.image_model.graph import WORTH_CONVERTING, Graph, graph_of


class Extractor:
    """A backbone, shared by all models that use it; converted to ONNX once, in its own thread, and cached."""

    def __init__(self, backbone: Backbone) -> None:
        self.backbone, self.card = backbone, backbone.card
        self._graph: Graph | None = graph_of(backbone, pixels=0)  # if it was converted before
        self._conversion = threading.Thread(target=self._convert, name="dsal-convert", daemon=True)
        if self._graph is None:
            self._conversion.start()

    def features(self, images: Pixels) -> NDArray[np.float32]:
        """Return features (n, d) of images (n, c, size, size)."""
        if self._graph is not None:
            return self._graph(images)
        with torch.no_grad():
            features: NDArray[np.float32] = self.backbone.extract(torch.from_numpy(images)).cpu().numpy()
        return features

    def prepare(self) -> None:
        """Wait until the backbone is converted.

        So all images of a model are learned by the same runtime, and forgetting them leaves nothing behind.
        """
        if self._conversion.ident is not None:
            self._conversion.join()

    def _convert(self) -> None:
        self._graph = graph_of(self.backbone, WORTH_CONVERTING)
