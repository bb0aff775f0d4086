"""Transforms that make classes of their own: an auxiliary head tells class *and* transform.

Upright images are transform 0; the transforms of a recipe follow in its order.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

import torch
from torch import Generator, Tensor

ROTATIONS = ("rotate90", "rotate180", "rotate270")
SWAPS = ("gbr", "brg")

TRANSFORMS: Mapping[str, Callable[[Tensor], Tensor]] = {
    **{name: partial(torch.rot90, k=k, dims=(2, 3)) for k, name in enumerate(ROTATIONS, start=1)},
    "gbr": lambda images: images[:, [1, 2, 0]],
    "brg": lambda images: images[:, [2, 0, 1]],
}
"""Transforms of square images (n, c, side, side) by name; the swaps are of red, green and blue."""


def transformed(images: Tensor, names: Sequence[str], share: float, generator: Generator) -> tuple[Tensor, Tensor]:
    """Transform a fraction ``share`` of the batch, its first images, each by one of the transforms, drawn uniformly.

    Returns:
        The images, and the number of each one's transform (n,): 0 for upright.
    """
    count = round(share * len(images))
    which = torch.zeros(len(images), dtype=torch.int64)
    which[:count] = torch.randint(1, len(names) + 1, (count,), generator=generator)
    which = which.to(images.device)
    out = images.clone()
    for number, name in enumerate(names, start=1):
        out[which == number] = TRANSFORMS[name](images[which == number])
    return out, which


def joint_labels(labels: Tensor, which: Tensor, transforms: int) -> Tensor:
    """Return the labels (n,) of class and transform: the outputs of a class stand side by side, upright first."""
    return (1 + transforms) * labels + which
