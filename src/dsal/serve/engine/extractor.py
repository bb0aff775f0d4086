"""From images to features: files decoded by the thread that runs the backbone on them.

ONNX Runtime runs the backbone if it is available; predictions use PyTorch until the conversion is ready.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray

from dsal.backbones.backbone import Backbone, Card
from dsal.data.images.decode import Pixels, decode_image
from dsal.errors import FileFormatError
from dsal.image_model.conversion import converted_elsewhere
from dsal.image_model.graph_features import WORTH_CONVERTING, Graph, graph_of
from dsal.serve.http_errors import Refusal

_CONVERTING = threading.Lock()


class Extractor:
    """A backbone, shared by all models that use it; converted to ONNX once, in its own process, and cached."""

    def __init__(self, backbone: Backbone) -> None:
        self.backbone, self.card = backbone, backbone.card
        self._graph: Graph | None = graph_of(backbone, pixels=0)  # if it was converted before
        wanted = weakref.ref(self)
        self._conversion = threading.Thread(target=_convert, args=(wanted,), name="dsal-convert", daemon=True)
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


def _convert(wanted: weakref.ref[Extractor]) -> None:
    """Convert the backbone of an extractor, one at a time, unless nobody needs it any more."""
    with _CONVERTING:
        extractor = wanted()
        if extractor is not None:
            extractor._graph = graph_of(extractor.backbone, WORTH_CONVERTING, converted_elsewhere)


@dataclass(eq=False)
class ImageFiles:
    """Some of the image files of a request.

    Attributes:
        files: their bytes.
        first: index of the first file among all images of the request.
        card: card of the backbone, which gives the size of the images.
        max_pixels: most pixels of an image; larger images are not decoded.
        skip_broken: whether to skip images that cannot be read.
        rows: indices of the decoded images.
        broken: index and reason of each image that cannot be read.
    """

    files: Sequence[bytes]
    first: int
    card: Card
    max_pixels: int
    skip_broken: bool
    rows: list[int] = field(default_factory=list)
    broken: dict[int, str] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.files)

    def decode(self) -> Pixels:
        """Return the pixels (n, channels, size, size) of the images that can be read.

        Raises:
            Refusal: a file is not an image, truncated or too large, and ``skip_broken`` is False.
        """
        size, channels = self.card.size, self.card.in_channels
        pixels: list[Pixels] = []
        for row, data in enumerate(self.files, self.first):
            try:
                pixels.append(decode_image(data, size, channels, max_pixels=self.max_pixels))
                self.rows.append(row)
            except FileFormatError as error:
                self.broken[row] = str(error).partition(": ")[2]
                if not self.skip_broken:
                    raise Refusal(422, f"image {row + 1} cannot be read: {self.broken[row]}") from error
        return np.stack(pixels) if pixels else np.empty((0, channels, size, size), np.uint8)
