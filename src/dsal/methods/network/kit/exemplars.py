"""Images kept from earlier phases within a budget, the best of each class first."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from dsal.data.samples import ImageData
from dsal.errors import InputError


def herd(features: Tensor, count: int) -> Tensor:
    """Choose rows (count,) greedily so that their running mean is closest to the mean of all (iCaRL, algorithm 4).

    Args:
        features: (n, d); scaled to length 1 first.
        count: number of rows to choose; all of them if there are fewer.
    """
    rows = functional.normalize(features.double())
    mean, total = rows.mean(dim=0), torch.zeros_like(rows[0])
    chosen: list[int] = []
    left = torch.ones(len(rows), dtype=torch.bool, device=rows.device)
    for number in range(1, min(count, len(rows)) + 1):
        distances = (mean - (total + rows) / number).square().sum(dim=1)
        best = int(distances.masked_fill(~left, torch.inf).argmin())
        chosen.append(best)
        left[best] = False
        total += rows[best]
    return torch.tensor(chosen, dtype=torch.int64)


@dataclass(frozen=True, eq=False)
class LearnedImages(ImageData):
    """Images whose pixels were optimised: float32, on the scale of bytes, 0 to 255."""

    def __post_init__(self) -> None:
        if self.images.dtype != torch.float32 or self.labels.shape != self.images.shape[:1]:
            raise InputError(f"expected float32 images with one label each, got {self.images.dtype}")


class Exemplars:
    """Images with their labels, each class in order of importance.

    Args:
        per_class: images per class; None for all.
        budget: bytes of all images together; None for no limit. As classes arrive, images that no longer fit are
            dropped.
        learned: store pixels as float32 rather than bytes, so that they can be optimised.
    """

    def __init__(self, per_class: int | None, budget: int | None = None, *, learned: bool = False) -> None:
        if (per_class is not None and per_class < 0) or (budget is not None and budget < 0):
            raise InputError(f"exemplars per class and their bytes must be 0 or more, got {per_class} and {budget}")
        self.per_class, self.budget, self.learned = per_class, budget, learned
        self.data: ImageData | None = None

    def store(self, images: Tensor, labels: Tensor) -> None:
        """Replace all exemplars by these images (n, c, h, w), uint8 or float32, with their labels (n,)."""
        kind, dtype = (LearnedImages, torch.float32) if self.learned else (ImageData, torch.uint8)
        self.data = kind(images.to(dtype).contiguous(), labels.contiguous())

    def __len__(self) -> int:
        return 0 if self.data is None else len(self.data)

    @property
    def nbytes(self) -> int:
        """Bytes of the stored pixels."""
        return 0 if self.data is None else self.data.images.nbytes

    def allowed(self, classes: int, image_bytes: int) -> int | None:
        """Return how many images per class fit if ``classes`` share the budget; None for any number."""
        limits = [] if self.per_class is None else [self.per_class]
        if self.budget is not None:
            limits.append(self.budget // (classes * image_bytes))
        return min(limits, default=None)

    def add(self, data: ImageData, classes: int) -> None:
        """Add images of new classes, most important first within each, and drop what no longer fits.

        Args:
            data: images of the new classes.
            classes: number of classes that share the budget from now on.
        """
        both = [part for part in (self.data, data) if part is not None]
        self.store(torch.cat([part.images for part in both]), torch.cat([part.labels for part in both]))
        self.cut(self.allowed(classes, self.nbytes // len(self)) if len(self) else None)

    def cut(self, most: int | None) -> None:
        """Keep only the ``most`` most important images of each class; None for all."""
        if self.data is None or not len(self.data):
            return
        images, labels = self.data.images, self.data.labels
        rows = torch.cat([torch.nonzero(labels == label).flatten()[:most] for label in labels.unique()])
        self.store(images[rows], labels[rows])
