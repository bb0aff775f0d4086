"""Augmentation of whole batches of uint8 images, on whatever device they are.

Every random choice comes from the generator that is passed in, so a seed fixes the batch. The operations and ranges of
``trivial`` are those of TrivialAugmentWide (Müller and Hutter, 2021): one operation per image, drawn evenly, at a
strength drawn evenly.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Generator, Tensor
from torch.nn import functional

CROP_PADDING = 4


def crop_flip(images: Tensor, generator: Generator, *, mirror: bool = True) -> Tensor:
    """Shift each image by up to 4 pixels (zeros come in at the border), and mirror half of them: (n, c, h, w)."""
    n, _, h, w = images.shape
    device = images.device
    padded = functional.pad(images, (CROP_PADDING,) * 4)
    top, left = (torch.randint(0, 2 * CROP_PADDING + 1, (n, 1), generator=generator).to(device) for _ in range(2))
    flip = mirror * torch.randint(0, 2, (n, 1), generator=generator).to(device)
    across = torch.arange(w, device=device)
    rows = top + torch.arange(h, device=device)  # (n, h)
    columns = left + torch.where(flip == 1, across.flip(0), across)  # (n, w)
    index = torch.arange(n, device=device)
    # Indices of shape (n, h, w) around the channel slice give (n, h, w, c).
    return padded[index[:, None, None], :, rows[:, :, None], columns[:, None, :]].permute(0, 3, 1, 2).contiguous()


def cutout(images: Tensor, size: int, generator: Generator) -> Tensor:
    """Blank one square of ``size`` pixels an image, its centre anywhere (DeVries and Taylor, 2017)."""
    n, _, h, w = images.shape
    y, x = (torch.randint(0, side, (n, 1), generator=generator).to(images.device) for side in (h, w))
    half = size / 2
    outside_y = (torch.arange(h, device=images.device) - y).abs() >= half  # (n, h)
    outside_x = (torch.arange(w, device=images.device) - x).abs() >= half  # (n, w)
    keep = outside_y[:, None, :, None] | outside_x[:, None, None, :]
    return images * keep


def mixup(images: Tensor, alpha: float, generator: Generator) -> tuple[Tensor, Tensor, float]:
    """Blend the batch with a permutation of itself (Zhang et al., 2018).

    Args:
        images: (n, c, h, w), floating point.

    Returns:
        The blend, the permutation (n,), and the share of the first partner.
    """
    # Beta(a, a) as a ratio of two Gamma(a) draws; torch's own Beta takes no generator.
    draws = torch._standard_gamma(torch.full((2,), alpha, dtype=torch.float64), generator=generator)
    share = float(draws[0] / draws.sum())
    partner = torch.randperm(len(images), generator=generator).to(images.device)
    return share * images + (1 - share) * images[partner], partner, share


def quarter_turns(images: Tensor, share: float, generator: Generator) -> tuple[Tensor, Tensor]:
    """Turn the first ``share`` of the batch by 90, 180 or 270 degrees: images, and quarter turns (n,) from 0 to 3."""
    turned = round(share * len(images))
    turns = torch.zeros(len(images), dtype=torch.int64)
    turns[:turned] = torch.randint(1, 4, (turned,), generator=generator)
    turns = turns.to(images.device)
    out = images.clone()
    for quarter in (1, 2, 3):
        out[turns == quarter] = torch.rot90(images[turns == quarter], quarter, dims=(2, 3))
    return out, turns


def trivial(images: Tensor, share: float, generator: Generator) -> Tensor:
    """One random operation at a random strength, on ``share`` of the images: (n, c, h, w) uint8 to uint8."""
    n = len(images)
    choice = torch.randint(0, len(OPERATIONS), (n,), generator=generator)
    choice[torch.rand(n, generator=generator) >= share] = -1
    # Strengths are 31 levels in [0, 1]; the sign is drawn for all, and used where an operation has two directions.
    level = torch.randint(0, 31, (n,), generator=generator) / 30
    sign = 1 - 2 * torch.randint(0, 2, (n,), generator=generator)
    out = images.clone()
    for number, operation in enumerate(OPERATIONS):
        rows = (choice == number).nonzero().squeeze(1)
        if len(rows):
            at = rows.to(images.device)
            strength = level[rows].to(images.device), sign[rows].to(images.device)
            out[at] = operation(images[at].float(), *strength).round_().clamp_(0, 255).to(images.dtype)
    return out


def _affine(images: Tensor, matrix: list[list[Tensor]]) -> Tensor:
    """Sample each image at matrix @ (x, y, 1) in normalised coordinates, nearest pixel, zeros outside."""
    theta = torch.stack([torch.stack(row, dim=1) for row in matrix], dim=1)  # (n, 2, 3)
    grid = functional.affine_grid(theta, list(images.shape), align_corners=False)
    return functional.grid_sample(images, grid, mode="nearest", padding_mode="zeros", align_corners=False)


def _shear_x(images: Tensor, level: Tensor, sign: Tensor) -> Tensor:
    zero, one = torch.zeros_like(level), torch.ones_like(level)
    return _affine(images, [[one, 0.99 * level * sign, zero], [zero, one, zero]])


def _shear_y(images: Tensor, level: Tensor, sign: Tensor) -> Tensor:
    zero, one = torch.zeros_like(level), torch.ones_like(level)
    return _affine(images, [[one, zero, zero], [0.99 * level * sign, one, zero]])


def _translate_x(images: Tensor, level: Tensor, sign: Tensor) -> Tensor:
    zero, one = torch.zeros_like(level), torch.ones_like(level)
    return _affine(images, [[one, zero, 64 * level * sign / images.shape[3]], [zero, one, zero]])


def _translate_y(images: Tensor, level: Tensor, sign: Tensor) -> Tensor:
    zero, one = torch.zeros_like(level), torch.ones_like(level)
    return _affine(images, [[one, zero, zero], [zero, one, 64 * level * sign / images.shape[2]]])


def _rotate(images: Tensor, level: Tensor, sign: Tensor) -> Tensor:
    angle = math.radians(135) * level * sign
    zero = torch.zeros_like(level)
    return _affine(images, [[angle.cos(), -angle.sin(), zero], [angle.sin(), angle.cos(), zero]])


def _grey(images: Tensor) -> Tensor:
    """Luma (n, 1, h, w) of colour images; grey images as they are."""
    if images.shape[1] != 3:
        return images.mean(dim=1, keepdim=True)
    weights = torch.tensor([0.299, 0.587, 0.114], device=images.device).view(1, 3, 1, 1)
    return (images * weights).sum(dim=1, keepdim=True)


def _blend(images: Tensor, other: Tensor | float, level: Tensor, sign: Tensor) -> Tensor:
    """``other`` at factor 0, the image at factor 1; factors from 0.01 to 1.99."""
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
    values = images.long().view(n * c, h * w)
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
    """Images (n, c, h, w) brought to ``side`` x ``side`` pixels; as they are for None."""
    if side in (None, x.shape[3]):
        return x
    return functional.interpolate(x, size=(side, side), mode="bilinear", antialias=True)
