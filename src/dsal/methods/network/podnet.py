"""PODNet: pooled outputs distillation (Douillard et al., ECCV 2020)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from sklearn.cluster import KMeans
from torch import Tensor
from torch.nn import functional

from dsal.methods.contract import Phase
from dsal.methods.network.kit.growing_network import Output
from dsal.methods.network.kit.losses import less_forget, nca, pod_spatial
from dsal.methods.network.kit.network_method import NetworkMethod
from dsal.methods.network.kit.part import FreezeOldRows, Part
from dsal.methods.network.kit.replay import ReplayMethod
from dsal.methods.network.kit.stages import Stage
from dsal.training.fit import Batch, Forward


class ImprintProxies(Part[NetworkMethod]):
    """From phase 1 on, the proxies of new classes start as k-means centres; see :class:`~.lucir.Imprint`."""

    def begin(self, phase: Phase) -> None:
        if not self.method.classes_seen:
            return
        head, labels = self.method.network.head, phase.samples.labels.cpu()
        rows = functional.normalize(self.method.features_of(phase.samples)).cpu()
        new = range(head.classes - head.groups[-1], head.classes)
        centres = [_centres(rows[labels == label], head.rows, self.method.seed) for label in new]
        head.imprint(torch.cat(centres).to(self.method.torch_device))


class BalancedSet(Part[NetworkMethod]):
    """Exemplars of new classes are chosen before the proxies are tuned on those of all classes."""

    def begin_stage(self, number: int, phase: Phase) -> None:
        if number == 1:
            self.method.memory.keep(phase)


@dataclass(kw_only=True, eq=False)
class PODNet(ReplayMethod):
    """Several proxies per class, distillation of the maps at all depths, and proxies tuned on a balanced set.

    L = NCA(o, y) + sqrt(classes / new) (spatial POD(maps, before) + flat (1 - cos(f, f_before))). Old proxies are
    frozen; from phase 1 on, new ones start as the k-means centres of their class. Then all proxies are
    trained on only the exemplars of old and new classes. It stores the network and the exemplars.

    Unlike the published code, maps and features are taken after the ReLU of the network that all methods share, at
    three depths rather than four; gradients are not clamped to +-5; images get no colour jitter; and the statistics of
    batch normalisation are frozen while proxies are tuned.

    Args:
        proxies: proxies per class.
        spatial: weight of the distance between maps, before it grows with the number of classes.
        flat: weight of the distance between features, likewise.
        tune_epochs: passes over the balanced set.
        tune_lr: learning rate on the balanced set.
    """

    name = "podnet"
    title = "PODNet"

    milestones: tuple[float, ...] = ()
    proxies: int = 10
    spatial: float = 3.0
    flat: float = 1.0
    tune_epochs: int = 20
    tune_lr: float = 0.05

    head = "proxies"
    has_teacher = True
    parts: ClassVar[tuple[type[Part[Any]], ...]] = (ImprintProxies, FreezeOldRows, BalancedSet)

    def head_options(self) -> dict[str, Any]:
        return {"proxies": self.proxies}

    def loss(self, now: Output, before: Output | None, labels: Tensor, known: int) -> Tensor:
        if before is None:
            return nca(now.logits, labels)
        return podnet_loss(now, before, labels, self.spatial, self.flat)

    def stage(self, number: int, phase: Phase, epochs: int) -> Stage | None:
        balanced = self.exemplars.data
        if number == 1 and self.classes_seen and balanced is not None:
            recipe = {"lr": self.tune_lr, "milestones": (1.0,)}  # a constant learning rate
            head = self.network.head
            return Stage(self.tune_epochs, balanced, loss=self._tuning_loss, trained=head.weights, recipe=recipe)
        return super().stage(number, phase, epochs)

    def _tuning_loss(self, forward: Forward, batch: Batch) -> tuple[Tensor, int]:
        self.network.body.eval()
        labels = batch.labels[batch.mine]
        logits = forward(self.network.normalise(batch.images[batch.mine])).logits
        return nca(logits, labels), int((logits.argmax(1) == labels).sum())


def podnet_loss(now: Output, before: Output, labels: Tensor, spatial: float, flat: float) -> Tensor:
    """Return NCA(o, y) + sqrt(classes / new) (spatial POD(maps, before) + flat (1 - cos(f, f_before)))."""
    known, classes = before.logits.shape[1], now.logits.shape[1]
    growth = math.sqrt(classes / (classes - known))
    kept = spatial * pod_spatial(now.maps, before.maps) + flat * less_forget(now.features, before.features)
    return nca(now.logits, labels) + growth * kept


def _centres(rows: Tensor, count: int, seed: int) -> Tensor:
    """Return the cluster centres (count, d) of directions (n, d), repeated if there are fewer rows than clusters."""
    clusters = KMeans(min(count, len(rows)), n_init=1, random_state=seed).fit(rows.numpy())
    centres = torch.from_numpy(clusters.cluster_centers_).float()
    return centres[torch.arange(count) % len(centres)]
