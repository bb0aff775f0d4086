"""Augmentation of whole batches of uint8 images, on any device, and transforms that make classes of their own.

Every random choice comes from the generator that is passed in, so a seed fixes the batch. The operations and ranges of
``trivial`` are those of TrivialAugmentWide (Müller and Hutter, 2021): one operation per image, drawn uniformly,
at a strength drawn uniformly.

A process that holds only part of a batch (:class:`BatchPart`) draws for the whole batch and keeps its own part, so
that an image is changed in the same way however many processes share the batch.

An auxiliary head tells class *and* transform: upright images are transform 0; the transforms of a recipe follow in its
order.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Generator, Tensor
from torch.nn import functional

CROP_PADDING = 4


@dataclass(frozen=True)
class BatchPart:
    """The images ``rows`` of a batch of ``total``."""

    total: int
    rows: slice


def _draw(draw: Callable[..., Tensor], n: int, part: BatchPart | None) -> Tensor:
    """Return random numbers for the n images here, drawn for the whole batch if they are a part of one."""
    return draw(n) if part is None else draw(part.total)[part.rows]


def crop_flip(images: Tensor, generator: Generator, *, mirror: bool = True, part: BatchPart | None = None) -> Tensor:
    """Shift each image by up to 4 pixels, padding with zeros, and mirror half of them: (n, c, h, w)."""
    n, _, h, w = images.shape
    device = images.device
    padded = functional.pad(images, (CROP_PADDING,) * 4)

    def integers(high: int) -> Tensor:
        return _draw(lambda n: torch.randint(0, high, (n, 1), generator=generator), n, part).to(device)

    top, left = (integers(2 * CROP_PADDING + 1) for _ in range(2))
    flip = mirror * integers(2)
    across = torch.arange(w, device=device)
    rows = top + torch.arange(h, device=device)  # (n, h)
    columns = left + torch.where(flip == 1, across.flip(0), across)  # (n, w)
    index = torch.arange(n, device=device)
    # Indices of shape (n, h, w) around the channel slice give (n, h, w, c).
    return padded[index[:, None, None], :, rows[:, :, None], columns[:, None, :]].permute(0, 3, 1, 2).contiguous()


def cutout(images: Tensor, size: int, generator: Generator, part: BatchPart | None = None) -> Tensor:
    """Blank one square of ``size`` pixels per image, its centre anywhere (DeVries and Taylor, 2017)."""
    n, _, h, w = images.shape
    y, x = (
        _draw(lambda n, side=side: torch.randint(0, side, (n, 1), generator=generator), n, part).to(images.device)
        for side in (h, w)
    )
    half = size / 2
    outside_y = (torch.arange(h, device=images.device) - y).abs() >= half  # (n, h)
    outside_x = (torch.arange(w, device=images.device) - x).abs() >= half  # (n, w)
    keep = outside_y[:, None, :, None] | outside_x[:, None, None, :]
    return images * keep


def beta_shares(count: int, alpha: float, generator: Generator) -> Tensor:
    """Draw numbers (count,) from Beta(a, a), as ratios of Gamma(a): torch's own Beta takes no generator."""
    draws = torch._standard_gamma(torch.full((2, count), alpha, dtype=torch.float64), generator=generator)
    return draws[0] / draws.sum(dim=0)


def mixup(images: Tensor, alpha: float, generator: Generator) -> tuple[Tensor, Tensor, float]:
    """Blend the batch with a permutation of itself (Zhang et al., 2018).

    Args:
        images: (n, c, h, w), floating point.

    Returns:
        The blend, the permutation (n,), and the weight of the unpermuted images.
    """
    weight = float(beta_shares(1, alpha, generator))
    partner = torch.randperm(len(images), generator=generator).to(images.device)
    return weight * images + (1 - weight) * images[partner], partner, weight


def trivial(images: Tensor, share: float, generator: Generator, part: BatchPart | None = None) -> Tensor:
    """Apply a random operation at a random strength to a fraction ``share`` of images: (n, c, h, w) uint8 to uint8."""
    n = len(images)
    choice = _draw(lambda n: torch.randint(0, len(OPERATIONS), (n,), generator=generator), n, part).clone()
    choice[_draw(lambda n: torch.rand(n, generator=generator), n, part) >= share] = -1
    # Strengths are 31 levels in [0, 1]; the sign is drawn for all, and used where an operation has two directions.
    level = _draw(lambda n: torch.randint(0, 31, (n,), generator=generator), n, part) / 30
    sign = 1 - 2 * _draw(lambda n: torch.randint(0, 2, (n,), generator=generator), n, part)
    out = images.clone()
    for number, operation in enumerate(OPERATIONS):
        rows = (choice == number).nonzero().squeeze(1)
        if len(rows):
            at = rows.to(images.device)
            strength = level[rows].to(images.device), sign[rows].to(images.device)
            out[at] = operation(images[at].float(), *strength).round_().clamp_(0, 255).to(images.dtype)
    return out


def colour_jitter(images: Tensor, strength: float, generator: Generator, part: BatchPart | None = None) -> Tensor:
    """Change brightness, contrast and saturation, in this order, each by a factor of 1 - strength to 1 + strength."""
    n, x = len(images), images.float()
    for change in (_brightness, _contrast, _colour):
        factor = _draw(lambda n: 2 * torch.rand(n, generator=generator) - 1, n, part).to(images.device)
        x = change(x, factor.abs() * (strength / 0.99), factor.sign()).clamp_(0, 255)
    return x.round_().to(images.dtype)


def _affine(images: Tensor, changed: dict[tuple[int, int], Tensor]) -> Tensor:
    """Sample each image at M (x, y, 1) in normalised coordinates, nearest pixel, zeros outside.

    M (2, 3) is the identity but for the entries ``changed``, (n,) each, by row and column.
    """
    matrix = torch.eye(2, 3, device=images.device).repeat(len(images), 1, 1)
    for (row, column), values in changed.items():
        matrix[:, row, column] = values
    grid = functional.affine_grid(matrix, list(images.shape), align_corners=False)
    return functional.grid_sample(images, grid, mode="nearest", padding_mode="zeros", align_corners=False)


def _shear_x(images: Tensor, level: Tensor, sign: Tensor) -> Tensor:
    return _affine(images, {(0, 1): 0.99 * level * sign})


def _shear_y(images: Tensor, level: Tensor, sign: Tensor) -> Tensor:
    return _affine(images, {(1, 0): 0.99 * level * sign})


def _translate_x(images: Tensor, level: Tensor, sign: Tensor) -> Tensor:
    return _affine(images, {(0, 2): 64 * level * sign / images.shape[3]})


def _translate_y(images: Tensor, level: Tensor, sign: Tensor) -> Tensor:
    return _affine(images, {(1, 2): 64 * level * sign / images.shape[2]})


def _rotate(images: Tensor, level: Tensor, sign: Tensor) -> Tensor:
    angle = math.radians(135) * level * sign
    cos, sin = angle.cos(), angle.sin()
    return _affine(images, {(0, 0): cos, (0, 1): -sin, (1, 0): sin, (1, 1): cos})


def _grey(images: Tensor) -> Tensor:
    """Return the luma (n, 1, h, w) of colour images; grey images as they are."""
    if images.shape[1] != 3:
        return images.mean(dim=1, keepdim=True)
    weights = torch.tensor([0.299, 0.587, 0.114], device=images.device).view(1, 3, 1, 1)
    return (images * weights).sum(dim=1, keepdim=True)


def _blend(images: Tensor, other: Tensor | float, level: Tensor, sign: Tensor) -> Tensor:
    """Blend with ``other``: ``other`` at factor 0, the image at factor 1; factors from 0.01 to 1.99."""
    factor = (1 + 0.99 * level * sign).view(-1, 1, 1, 1)
    return factor * images + (1 - factor) * other


def _brightness(images: Tensor, level: Tensor, sign: Tensor) -> Tensor:
    return _blend(images, 0.0, level, sign)


def _colour(images: Tensor, level: Tensor, sign: Tensor) -> Tensor:
    return _blend(images, _grey(images), level, sign)


def _contrast(images: Tensor, level: Tensor, sign: Tensor) -> Tensor:
    return _blend(images, _grey(images).mean(dim=(2, 3), keepdim=True), level, sign)


def _sharpness(images: Tensor, level: Tensor, sign: Tensor) -> Tensor:
    channels = images.shape[1]
    kernel = torch.ones(3, 3, device=images.device)
    kernel[1, 1] = 5
    smooth = images.clone()  # the border stays as it is
    weight = (kernel / kernel.sum()).expand(channels, 1, 3, 3)
    smooth[:, :, 1:-1, 1:-1] = functional.conv2d(images, weight, groups=channels)
    return _blend(images, smooth, level, sign)


def _posterize(images: Tensor, level: Tensor, sign: Tensor) -> Tensor:
    bits = (8 - (6 * level).round()).view(-1, 1, 1, 1)
    step = 2 ** (8 - bits)
    return (images / step).floor() * step


def _solarize(images: Tensor, level: Tensor, sign: Tensor) -> Tensor:
    threshold = (255 * (1 - level)).view(-1, 1, 1, 1)
    return torch.where(images >= threshold, 255 - images, images)


def _autocontrast(images: Tensor, level: Tensor, sign: Tensor) -> Tensor:
    low, high = images.amin(dim=(2, 3), keepdim=True), images.amax(dim=(2, 3), keepdim=True)
    stretched = (images - low) * (255 / (high - low).clamp(min=1))
    return torch.where(high > low, stretched, images)


def _equalize(images: Tensor, level: Tensor, sign: Tensor) -> Tensor:
    """Spread each channel's histogram evenly over 0..255."""
    n, c, h, w = images.shape
    values = images.long().reshape(n * c, h * w)
    counts = torch.zeros(n * c, 256, device=images.device).scatter_add_(1, values, torch.ones_like(values).float())
    top = counts.gather(1, values.amax(dim=1, keepdim=True))  # pixels at the brightest value
    step = ((h * w - top) / 255).floor()
    below = counts.cumsum(dim=1) - counts
    table = ((below + (step / 2).floor()) / step.clamp(min=1)).floor().clamp(0, 255)
    return torch.where(step == 0, values.float(), table.gather(1, values)).view(n, c, h, w)


def _identity(images: Tensor, level: Tensor, sign: Tensor) -> Tensor:
    return images


OPERATIONS: tuple[Callable[[Tensor, Tensor, Tensor], Tensor], ...] = (
    _identity,
    _shear_x,
    _shear_y,
    _translate_x,
    _translate_y,
    _rotate,
    _brightness,
    _colour,
    _contrast,
    _sharpness,
    _posterize,
    _solarize,
    _autocontrast,
    _equalize,
)


def resized(x: Tensor, side: int | None) -> Tensor:
    """Resize images (n, c, h, w) to ``side`` x ``side`` pixels; None leaves them as they are."""
    if side in (None, x.shape[3]):
        return x
    return functional.interpolate(x, size=(side, side), mode="bilinear", antialias=True)


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
