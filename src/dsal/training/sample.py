"""The images of a base training: which are held out, the statistics of their pixels, and the seed of an epoch."""

from __future__ import annotations

import math

import torch
from torch import Generator, Tensor

from dsal.data.dataset import fingerprint
from dsal.data.images.image_files import FileData, files_fingerprint
from dsal.data.samples import ImageData, Samples
from dsal.errors import InputError


def pixel_moments(samples: Samples) -> list[tuple[float, float]]:
    """Return mean and standard deviation of each channel of uint8 images, scaled to 0..1; reads them in batches."""
    counts = None
    for images, _ in samples.batches(256):
        new = torch.stack([torch.bincount(c.flatten(), minlength=256) for c in images.transpose(0, 1)]).cpu().double()
        counts = new if counts is None else counts + new
    if counts is None:
        raise InputError("there are no images to compute the mean of")
    return [_moments(channel) for channel in counts]


def _moments(counts: Tensor) -> tuple[float, float]:
    """Return mean and standard deviation of the values 0/255, 1/255 ... 1 with these counts (256,)."""
    values, total = torch.arange(256).double() / 255, float(counts.sum())
    mean = float(counts @ values) / total
    return mean, math.sqrt(float(counts @ (values - mean) ** 2) / (total - 1))


def split(labels: Tensor, fraction: float, generator: Generator) -> tuple[Tensor, Tensor]:
    """Return rows to train on and rows held out: a random fraction of each class."""
    kept, out = [], []
    for rows in shuffled_classes(labels, generator):
        cut = round(fraction * len(rows))
        out.append(rows[:cut])
        kept.append(rows[cut:])
    return torch.cat(kept), torch.cat(out)


def shuffled_classes(labels: Tensor, generator: Generator) -> list[Tensor]:
    """Return the rows of each label, in random order; ``labels`` are (n,)."""
    order = torch.randperm(len(labels), generator=generator)
    return [order[labels[order] == label] for label in labels.unique()]


def every_nth(n: int, most: int) -> Tensor:
    """Return at most ``most`` of ``n`` rows, evenly spread; all of them if there are no more."""
    return torch.arange(0, n, max(1, -(-n // most)))


def on_device(data: ImageData | FileData, device: torch.device) -> ImageData | FileData:
    """Move images in memory to a device; images in files stay there."""
    return ImageData(data.images.to(device), data.labels.to(device)) if isinstance(data, ImageData) else data


def content_fingerprint(train: ImageData | FileData, held_out: ImageData | FileData) -> str:
    """Return the sha256 of the training and held-out images; for files, of their names, sizes and labels."""
    if isinstance(train, FileData) and isinstance(held_out, FileData):
        return files_fingerprint(train, held_out)
    return fingerprint(*(part for part in (train, held_out) if isinstance(part, ImageData)))


def seed_of(seed: int, epoch: int) -> int:
    """Return a seed for an epoch, such that neighbouring (seed, epoch) pairs share nothing."""
    return (seed * 1_000_003 + epoch * 7_919 + 12_345) % (2**63)
