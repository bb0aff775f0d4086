"""Images of earlier phases: exemplars within a budget, the policy that uses and chooses them, and validation splits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from dsal.data.images.image_files import FileData
from dsal.data.samples import ImageData, Samples, joined
from dsal.errors import InputError
from dsal.methods.contract import Phase
from dsal.methods.network.kit.part import M, Part


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


class Memory(Part[M]):
    """No images are kept, unless a subclass says so in ``room``; those kept are chosen by herding."""

    def __init__(self, method: M) -> None:
        super().__init__(method)
        self.exemplars = self.room()

    def room(self) -> Exemplars:
        """Return the initial, empty memory."""
        return Exemplars(0)

    def used(self, phase: Phase) -> Phase:
        """Return the phase with the images to train on."""
        return phase

    def counts(self, phase: Phase) -> dict[int, int | None]:
        """Return the number of images to keep of each class of a phase; None for all."""
        return dict.fromkeys(phase.classes, self.exemplars.per_class)

    def with_exemplars(self, phase: Phase) -> Samples:
        """Return the images of the phase and the exemplars of earlier ones."""
        old = self.exemplars.data
        return phase.samples if old is None else joined([phase.samples, old])

    def keep(self, phase: Phase) -> None:
        """Choose exemplars of the new classes by herding, unless already done in this phase."""
        known, held = self.method.classes_seen, self.exemplars.data
        if self.exemplars.per_class == 0 or (held is not None and bool((held.labels >= known).any())):
            return
        labels, chosen = phase.samples.labels, []
        for label, count in self.counts(phase).items():
            rows = torch.nonzero(labels == label).flatten()
            own = phase.samples.take(rows)
            some = own if count is None else own.take(herd(self.method.features_of(own), count).to(rows.device))
            chosen.append(_in_memory(some))
        images, targets = (torch.cat([getattr(part, name) for part in chosen]) for name in ("images", "labels"))
        self.exemplars.add(ImageData(images, targets), self.method.network.head.classes)
        self.method.each_part("kept", phase)


class KeepEverything(Memory[M]):
    """All images of all phases are kept."""

    def room(self) -> Exemplars:
        return Exemplars(None)


def _in_memory(samples: Samples) -> ImageData:
    """Return the images as arrays on the CPU."""
    if isinstance(samples, ImageData | FileData):
        return samples.in_memory()
    raise InputError(f"expected images, got {type(samples).__name__}")


class Split(NamedTuple):
    """The images of a phase and the exemplars, split in two."""

    training: Samples
    held_out: Samples


def balanced_split(samples: Samples, kept: ImageData | None, fraction: float, seed: int) -> Split | None:
    """Hold out the same number of images of every class; return None if a class has fewer than two exemplars.

    Args:
        samples: images of the new classes; those to hold out are drawn at random.
        kept: exemplars of old classes, most important first within each; the last ones are held out.
        fraction: fraction of the exemplars of the class with the fewest to hold out; at least one is.
        seed: seed of the draw.
    """
    if kept is None or not fraction:
        return None
    fewest = int(min((kept.labels == label).sum() for label in kept.labels.unique()))
    if fewest < 2:
        return None
    each = min(max(1, round(fraction * fewest)), fewest - 1)
    order = torch.randperm(len(samples), generator=torch.Generator().manual_seed(seed))
    old = _first_per_class(kept.labels.cpu().flip(0), each).flip(0)  # the last ones
    new = torch.zeros(len(samples), dtype=torch.bool)
    new[order] = _first_per_class(samples.labels.cpu()[order], each)
    parts = []
    for chosen in (False, True):
        of_old, of_new = (torch.nonzero(mask == chosen).flatten() for mask in (old, new))
        device = samples.labels.device
        parts.append(joined([samples.take(of_new.to(device)), kept.take(of_old)]))
    return Split(*parts)


def _first_per_class(labels: Tensor, each: int) -> Tensor:
    """Return a mask (n,) of the first ``each`` rows of every label (n,)."""
    mask = torch.zeros(len(labels), dtype=torch.bool)
    for label in labels.unique():
        mask[torch.nonzero(labels == label).flatten()[:each]] = True
    return mask
