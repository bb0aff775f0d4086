"""PASS: prototype augmentation and self-supervision (Zhu et al., CVPR 2021)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Generator, Tensor
from torch.nn import functional

from dsal.errors import InputError
from dsal.methods.contract import Phase
from dsal.methods.network.kit.growing_network import Output
from dsal.methods.network.kit.network_method import NetworkMethod
from dsal.methods.network.kit.prototypes import PrototypeMethod, Prototypes, covariance
from dsal.training.fit import Batch

TURNS = 4


class NoisyPrototypes(Prototypes):
    """Prototypes, and the radius r of the noise around them, measured in phase 0."""

    tensors = ("means", "radius")

    def __init__(self, method: NetworkMethod) -> None:
        super().__init__(method)
        self.radius = torch.zeros((), device=method.torch_device)

    def check(self, phase: Phase) -> None:
        height, width = next(iter(phase.samples.batches(1)))[0].shape[2:]
        if height != width:
            raise InputError(f"PASS rotates images by 90 degrees: they must be square, got {height} x {width}")

    def measure(self, groups: list[Tensor]) -> None:
        if not self.method.classes_seen:
            self.radius = torch.stack([covariance(rows).diagonal().mean() for rows in groups]).mean().sqrt()


@dataclass(kw_only=True, eq=False)
class PASS(PrototypeMethod):
    """Every image in four rotations by 90 degrees, each a separate class, and noisy prototypes for old classes.

    L = CE(o / T, 4 y + turn) + replay CE(h(p_c + r e) / T, 4 c) + distil |F - F_before|_F, with h the head, c drawn
    uniformly from old classes, as many as images, and e normal. r^2 is the mean over the classes of phase 0 of the mean
    variance of a feature. The prediction is the largest of outputs 0, 4, 8 ... It stores the network, the prototypes
    and r: no image. A phase trains on four times its images.

    A network passed to ``start`` lacks the outputs of rotated images: ``adapt_epochs`` train it on phase 0. The
    published network has attention (ResNet-18 with CBAM) and its images get colour jitter; here all methods share
    network and augmentation.

    Source: the published code (CVPR21_PASS, ``PASS.py``).
    """

    name = "pass"
    title = "PASS"

    parts = (NoisyPrototypes,)

    def head_options(self) -> dict[str, Any]:
        return {"outputs": TURNS}

    def inputs_of(self, batch: Batch) -> tuple[Tensor, Tensor]:
        x, labels = super().inputs_of(batch)
        rotated = torch.cat([torch.rot90(x, turn, dims=(2, 3)) for turn in range(TURNS)])
        return rotated.contiguous(memory_format=torch.channels_last), turned_labels(labels)

    def replayed(self, drawn: Tensor, generator: Generator) -> Tensor:
        prototypes = self.prototypes[drawn]
        noise = torch.randn(prototypes.shape, generator=generator).to(prototypes)  # e
        logits = self.network.head(prototypes + self.part(NoisyPrototypes).radius * noise)
        return functional.cross_entropy(logits / self.temperature, TURNS * drawn)

    def scores_of(self, images: Tensor, output: Output) -> Tensor:
        return output.logits[:, ::TURNS]

    def adopt(self, weight: Tensor, bias: Tensor) -> bool:
        head = self.linear_head()
        if head.groups == [len(weight)]:
            with torch.no_grad():
                head.weights[0][::TURNS] = self.temperature * weight
                head.biases[0][::TURNS] = self.temperature * bias
        return False  # the outputs of rotated images are untrained


def turned_labels(labels: Tensor) -> Tensor:
    """Return 4 y + turn, (4 n,), for labels (n,): all images unrotated, then all rotated once, ..."""
    return torch.cat([TURNS * labels + turn for turn in range(TURNS)])
