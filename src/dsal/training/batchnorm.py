"""Batch normalisation over the batches of all ranks together.

torch's own version is for GPUs only. This one is plain torch code for any device, so that the code tested without a GPU
is the code that runs on one. Names of parameters and buffers are those of ``nn.BatchNorm2d``.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, distributed, nn
from torch.nn import functional


class SharedBatchNorm2d(nn.Module):
    """``nn.BatchNorm2d`` whose training statistics cover the images of all ranks, however many each has.

    Args:
        like: layer whose parameters, buffers and options are taken over.
    """

    running_mean: Tensor
    running_var: Tensor
    num_batches_tracked: Tensor

    def __init__(self, like: nn.BatchNorm2d) -> None:
        super().__init__()
        self.eps, self.momentum = like.eps, like.momentum or 0.1
        self.weight, self.bias = like.weight, like.bias
        for name, buffer in like.named_buffers():
            self.register_buffer(name, buffer)

    def forward(self, images: Tensor) -> Tensor:
        """Normalise images (n, c, h, w)."""
        if not self.training:
            statistics = self.running_mean, self.running_var
            return functional.batch_norm(images, *statistics, self.weight, self.bias, eps=self.eps)
        x = images.to(torch.promote_types(images.dtype, torch.float32))
        count = x.new_full((1,), x.numel() / x.shape[1])
        sums = _summed(torch.cat([x.sum((0, 2, 3)), count]))
        mean, total = sums[:-1] / sums[-1], sums[-1]
        centred = x - mean[:, None, None]
        variance = _summed(centred.square().sum((0, 2, 3))) / total
        with torch.no_grad():
            self.running_mean.lerp_(mean, self.momentum)
            self.running_var.lerp_(variance * total / (total - 1), self.momentum)
            self.num_batches_tracked += 1
        scale = self.weight * torch.rsqrt(variance + self.eps)
        return (centred * scale[:, None, None] + self.bias[:, None, None]).to(images.dtype)


def share_statistics_(network: nn.Module) -> None:
    """Replace every batch normalisation in ``network`` by one over all ranks."""
    for module in list(network.modules()):
        for name, child in module.named_children():
            if isinstance(child, nn.BatchNorm2d):
                setattr(module, name, SharedBatchNorm2d(child))


def _summed(x: Tensor) -> Tensor:
    return _Sum.apply(x)  # type: ignore[no-untyped-call, no-any-return]


class _Sum(torch.autograd.Function):
    """A differentiable sum over all ranks: each rank's input is part of every rank's sum."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        total = x.clone()
        distributed.all_reduce(total)
        return total

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        return _Sum.forward(ctx, gradients[0])
