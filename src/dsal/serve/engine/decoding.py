"""Image files of a request, decoded in the thread that runs the backbone on them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from dsal.backbones.backbone import Card
from dsal.data.images.decode import Pixels, decode_image
from dsal.errors import FileFormatError
from dsal.serve.http_errors import Refusal


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
