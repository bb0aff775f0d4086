"""IL2A: class-incremental learning via dual augmentation (Zhu et al., NeurIPS 2021)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import torch
from torch import Generator, Tensor, nn
from torch.nn import functional

from dsal.files.tensors import flat, under
from dsal.methods.contract import Phase
from dsal.methods.network.kit.growing_network import GrowingNetwork, Output
from dsal.methods.network.kit.heads import LinearHead
from dsal.methods.network.kit.losses import implicit_augmentation
from dsal.methods.network.kit.network_method import NetworkMethod
from dsal.methods.network.kit.part import Part
from dsal.methods.network.kit.prototypes import PrototypeMethod, Prototypes, covariance
from dsal.methods.network.kit.stages import Stage
from dsal.training.augment import beta_shares
from dsal.training.fit import Batch
from dsal.training.sample import seed_of


class Paired(nn.Module):
    """A network with additional outputs, one for each pair of new classes.

    Args:
        network: network with the outputs of classes.
        classes: number of new classes.
        generator: random generator for the initial weights.
    """

    def __init__(self, network: GrowingNetwork, classes: int, generator: Generator) -> None:
        super().__init__()
        self.network, self.pairs = network, LinearHead(network.head.width)
        self.pairs.grow(classes * (classes - 1) // 2, generator)

    def forward(self, x: Tensor) -> Output:
        """Return the output for normalised images (n, c, h, w): scores of classes, then of pairs."""
        output: Output = self.network(x)
        with torch.autocast(x.device.type, enabled=False):
            return output._replace(logits=torch.cat([output.logits, self.pairs(output.features)], dim=1))


class SpreadPrototypes(Prototypes):
    """Prototypes with the covariance of their class."""

    tensors = ("means", "covariances")

    def __init__(self, method: NetworkMethod) -> None:
        super().__init__(method)
        self.covariances = torch.empty(0, 0, 0, device=method.torch_device)  # (classes, d, d)

    def measure(self, groups: list[Tensor]) -> None:
        new = torch.stack([covariance(rows) for rows in groups])
        self.covariances = torch.cat([self.covariances, new]) if len(self.covariances) else new


class Pairs(Part[NetworkMethod]):
    """Additional outputs for pairs of new classes, during a phase."""

    def __init__(self, method: NetworkMethod) -> None:
        super().__init__(method)
        self.paired: Paired | None = None

    def begin(self, phase: Phase) -> None:
        self.paired = self._pair(phase.index)

    def _pair(self, phase: int) -> Paired:
        generator = Generator().manual_seed(seed_of(self.method.seed, 800_000 + phase))
        network = self.method.network
        return Paired(network, network.head.groups[-1], generator).to(self.method.torch_device)

    def end(self, phase: Phase) -> None:
        self.paired = None

    def state(self) -> dict[str, Tensor]:
        return {} if self.paired is None else flat({"pairs": self.paired.pairs.state_dict()})

    def restore(self, tensors: dict[str, Tensor]) -> None:
        if weights := under(tensors, "pairs"):
            self.paired = self._pair(0)
            self.paired.pairs.load_state_dict(weights)


@dataclass(kw_only=True, eq=False)
class IL2A(PrototypeMethod):
    """Blends of two new classes as additional classes, and prototypes spread by the covariance of their class.

    L = CE(o / T, y) + replay CE(q / T, c) + distil |F - F_before|_F. The first term is over images of the phase and
    ``rounds`` blends a x + (1 - a) x' of each with another image of the batch, if their classes differ, with a from
    Beta(``alpha``, ``alpha``), or 1/2 if it falls outside [0.4, 0.6]. Each pair of classes has an output during the
    phase, n (n - 1) / 2 in all, and none if a phase has one class. q_j = w_j p_c + b_j + ratio / 2 (w_j - w_c)^T S_c
    (w_j - w_c), with c drawn uniformly from old classes, as many as images. It stores the network, and a prototype and
    a covariance (d, d) of each class: no image.

    A network passed to ``start`` has not seen blends: ``adapt_epochs`` train it on phase 0. From phase 2 on, the
    published code gives classes the covariances of others (it prepends new ones, but indexes them by class); here each
    class has its own. The published network has attention (ResNet-18 with CBAM) and its images get colour jitter; here
    all methods share network and augmentation.

    Source: the published code (IL2A, ``cifar/IL2A.py``).

    Args:
        rounds: blends per image.
        alpha: parameter of the Beta distribution.
        ratio: scale of the covariance of a class.
    """

    name = "il2a"
    title = "IL2A"

    rounds: int = 4
    alpha: float = 20.0
    ratio: float = 2.5

    parts = (SpreadPrototypes, Pairs)

    def stage(self, number: int, phase: Phase, epochs: int) -> Stage | None:
        if number > 0:
            return None
        loss = partial(self.batch_loss, known=self.classes_seen)
        return Stage(epochs, phase.samples, loss=loss, module=self.part(Pairs).paired)

    def inputs_of(self, batch: Batch) -> tuple[Tensor, Tensor]:
        classes, new = self.network.head.classes, self.network.head.groups[-1]
        images, labels, first = self.network.normalise(batch.images), batch.labels, classes - new
        xs, ys = [images[batch.mine]], [labels[batch.mine]]
        for _ in range(self.rounds if new > 1 else 0):
            other = torch.randperm(len(images), generator=batch.generator).to(images.device)[batch.mine]
            mix = beta_shares(len(images), self.alpha, batch.generator)[batch.mine]
            mix[(mix - 0.5).abs() > 0.1] = 0.5
            differ = ys[0] != labels[other]
            a = mix.to(images)[differ, None, None, None]
            xs.append(a * xs[0][differ] + (1 - a) * images[other[differ]])
            ys.append(classes + pair_number(ys[0][differ] - first, labels[other[differ]] - first, new))
        return torch.cat(xs).contiguous(memory_format=torch.channels_last), torch.cat(ys)

    def replayed(self, drawn: Tensor, generator: Generator) -> Tensor:
        head = self.linear_head()
        logits, covariances = head(self.prototypes[drawn]), self.part(SpreadPrototypes).covariances[drawn]
        augmented = implicit_augmentation(logits, head.all_weights(), drawn, covariances, self.ratio)
        return functional.cross_entropy(augmented / self.temperature, drawn)

    def scores_of(self, images: Tensor, output: Output) -> Tensor:
        return output.logits[:, : self.network.head.classes]

    def adopt(self, weight: Tensor, bias: Tensor) -> bool:
        return super().adopt(weight, bias) and len(weight) < 2  # a single class has no pairs to train


def pair_number(one: Tensor, other: Tensor, classes: int) -> Tensor:
    """Return the indices (n,) of class pairs among all pairs of 0 .. classes - 1: (0, 1), (0, 2) ... (1, 2) ..."""
    low, high = torch.minimum(one, other), torch.maximum(one, other)
    return low * (2 * classes - low - 1) // 2 + high - low - 1
