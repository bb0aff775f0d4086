"""Images to features at the machine's speed: by ONNX Runtime where it is there, by PyTorch until it is ready."""

from __future__ import annotations

import threading
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor

from dsal.backbones.backbone import Backbone
from dsal.images.graph import WORTH_CONVERTING, Graph, graph_of


class Extractor:
    """A backbone, shared by all models that have the same; converted once, in a thread of its own, and cached."""

    def __init__(self, backbone: Backbone) -> None:
        self.backbone, self.card = backbone, backbone.card
        self._graph: Graph | None = graph_of(backbone, pixels=0)  # if it was converted before
        if self._graph is None:
            threading.Thread(target=self._convert, name="dsal-convert", daemon=True).start()

    def features(self, images: Tensor) -> tuple[NDArray[Any]]:
        """Features (n, d) of uint8 images (n, c, size, size)."""
        if self._graph is not None:
            return (self._graph(images.numpy()),)
        with torch.no_grad():
            return (self.backbone.extract(images).cpu().numpy(),)

    def _convert(self) -> None:
        self._graph = graph_of(self.backbone, WORTH_CONVERTING)
