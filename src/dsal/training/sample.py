"""The images of a base training: which are held out, the statistics of their pixels, the chance of an epoch."""

from __future__ import annotations

import math

import torch
from torch import Generator, Tensor

from dsal.data.samples import Samples
from dsal.errors import InputError


def pixel_moments(pixels: Tensor) -> tuple[float, float]:
    """Mean and standard deviation of uint8 pixels scaled to 0..1, by counts: no copy of eight times their size."""
    return _moments(torch.bincount(pixels.flatten(), minlength=256).cpu().double())


def moments_of_samples(samples: Samples) -> tuple[Tensor, Tensor]:
    """Mean and standard deviation (channels,) of the pixels of images, scaled to 0..1; a batch of them in memory."""
    counts = None
    for images, _ in samples.batches(256):
        new = torch.stack([torch.bincount(c.flatten(), minlength=256) for c in images.transpose(0, 1)]).cpu().double()
        counts = new if counts is None else counts + new
    if counts is None:
        raise InputError("there are no images to take the mean of")
    found = torch.tensor([_moments(channel) for channel in counts])
    return found[:, 0], found[:, 1]


def _moments(counts: Tensor) -> tuple[float, float]:
    """Mean and standard deviation of values 0/255, 1/255 ... 1 that occur so often (256,)."""
    values, total = torch.arange(256).double() / 255, float(counts.sum())
    mean = float(counts @ values) / total
    return mean, math.sqrt(float(counts @ (values - mean) ** 2) / (total - 1))


def split(labels: Tensor, share: float, generator: Generator) -> tuple[Tensor, Tensor]:
    """Rows to train on and rows held out: ``share`` of each class, at random."""
    order = torch.randperm(len(labels), generator=generator)
    kept, out = [], []
    for label in labels.unique():
        rows = order[labels[order] == label]
        cut = round(share * len(rows))
        out.append(rows[:cut])
        kept.append(rows[cut:])
    return torch.cat(kept), torch.cat(out)


def seed_of(seed: int, epoch: int) -> int:
    """A seed for an epoch, such that neighbouring (seed, epoch) pairs share nothing."""
    return (seed * 1_000_003 + epoch * 7_919 + 12_345) % (2**63)
