"""Images kept from earlier phases within a budget, the best of each class first."""

from __future__ import annotations

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


class Exemplars:
    """Images with their labels, each class in order of importance.

    Args:
        per_class: images per class; None for all.
        budget: bytes of all images together; None for no limit. As classes arrive, images that no longer fit are
            dropped.
    """

    def __init__(self, per_class: int | None, budget: int | None = None) -> None:
        if (per_class is not None and per_class < 0) or (budget is not None and budget < 0):
            raise InputError(f"exemplars per class and their bytes must be 0 or more, got {per_class} and {budget}")
        self.per_class, self.budget = per_class, budget
        self.data: ImageData | None = None

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
        images, labels = torch.cat([part.images for part in both]), torch.cat([part.labels for part in both])
        self.data = ImageData(images, labels)
        self.cut(self.allowed(classes, images[0].nbytes) if len(images) else None)

    def cut(self, most: int | None) -> None:
        """Keep only the ``most`` most important images of each class; None for all."""
        if self.data is None or not len(self.data):
            return
        images, labels = self.data.images, self.data.labels
        rows = torch.cat([torch.nonzero(labels == label).flatten()[:most] for label in labels.unique()])
        self.data = ImageData(images[rows].contiguous(), labels[rows].contiguous())
