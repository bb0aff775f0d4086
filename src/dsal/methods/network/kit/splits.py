"""Images held out of a phase's training for validation: the same number of each class, old and new."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from dsal.data.samples import ImageData, Samples, joined


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
