"""FOSTER: feature boosting and compression (Wang et al., ECCV 2022)."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from functools import partial
from typing import Literal, NamedTuple, cast

import torch
from torch import Generator, Tensor, nn
from torch.nn import functional

from dsal.files.tensors import flat, under
from dsal.methods.contract import Phase
from dsal.methods.network.kit.growing_network import GrowingNetwork, Output
from dsal.methods.network.kit.heads import LinearHead
from dsal.methods.network.kit.losses import distillation, effective_weights
from dsal.methods.network.kit.part import Part
from dsal.methods.network.kit.replay import ReplayMethod
from dsal.methods.network.kit.stages import Stage
from dsal.training.fit import Batch, Forward
from dsal.training.sample import seed_of


class BoostedOutput(NamedTuple):
    """The output of a boosted network for n images."""

    logits: Tensor  # (n, classes), of old and new features together
    fresh: Tensor  # (n, classes), of the new features alone
    old: Tensor  # (n, known), of the network before the phase


class Boosted(nn.Module):
    """A frozen network and a second body that learns what the first one gets wrong.

    Args:
        old: the network before the phase, with its head already grown.
        known: the number of classes before the phase.
        generator: random generator for the initial weights of the heads.
    """

    def __init__(self, old: GrowingNetwork, known: int, generator: Generator) -> None:
        super().__init__()
        self.known, self.old, width = known, old, old.head.width
        heads = LinearHead(2 * width), LinearHead(width)
        for head in heads:
            head.grow(old.head.classes, generator)
        self.new = nn.ModuleDict({"body": copy.deepcopy(old), "both": heads[0], "alone": heads[1]})
        with torch.no_grad():
            before = cast(LinearHead, old.head)
            heads[0].weights[0][:known, :width] = before.all_weights()[:known]
            heads[0].biases[0][:known] = torch.cat(list(before.biases))[:known]
        del self.new["body"].head  # the head over both bodies replaces it

    def train(self, mode: bool = True) -> Boosted:
        """Set the mode of the new body; the old one never trains."""
        super().train(mode)
        self.old.eval()
        return self

    def forward(self, x: Tensor) -> BoostedOutput:
        """Run normalised images (n, c, h, w) through both bodies and all heads."""
        before: Output = self.old(x)
        features = cast(GrowingNetwork, self.new["body"]).features(x)[0]
        with torch.autocast(x.device.type, enabled=False):
            both = self.new["both"](torch.cat([before.features, features], dim=1))
            return BoostedOutput(both, self.new["alone"](features), before.logits[:, : self.known])


class Boosting(Part["FOSTER"]):
    """The boosted network, from the beginning of a phase to its end, or longer if it predicts."""

    def __init__(self, method: FOSTER) -> None:
        super().__init__(method)
        self.boosted: Boosted | None = None

    def begin(self, phase: Phase) -> None:
        known = self.method.classes_seen
        self.boosted = self._expanded(known, phase.index) if known else None

    def _expanded(self, known: int, phase: int) -> Boosted:
        generator = Generator().manual_seed(seed_of(self.method.seed, 500_000 + phase))
        return Boosted(copy.deepcopy(self.method.network), known, generator).to(self.method.torch_device)

    def end(self, phase: Phase) -> None:
        if self.method.answer == "compressed":
            self.boosted = None

    def state(self) -> dict[str, Tensor]:
        if self.boosted is None:
            return {}
        return {"known": torch.tensor(self.boosted.known), **flat({"boosted": self.boosted.state_dict()})}

    def restore(self, tensors: dict[str, Tensor]) -> None:
        if weights := under(tensors, "boosted"):
            self.boosted = self._expanded(int(tensors["known"]), 0)
            self.boosted.load_state_dict(weights)


@dataclass(kw_only=True, eq=False)
class FOSTER(ReplayMethod):
    """A second body that learns the residual of the frozen first one; then both are compressed into one network.

    Boosting: L = CE(o / w, y) + CE(o_new, y) + strength KD_T(o[old], before), with o from the features of both bodies
    and o_new from the new ones alone; dividing by w gives rare classes more weight ("logits alignment"). Compression:
    the network before the phase, with its head grown, learns the output of the boosted one: KD_T with the class
    probabilities times w. w_c = (1 - b) / (1 - b^{n_c}), scaled to mean 1, for n_c images of a class.

    It stores one network and the exemplars; with ``answer="boosted"`` two more bodies. Unlike the published code,
    exemplars are herded by the features of the compressed network, and images get neither AutoAugment nor cutout.
    Published values for one or two new classes per phase: ``boost_beta`` 0.95 and, for one, ``compress_beta`` 0.98 and
    batches of 64.

    Args:
        strength: weight of the distillation while boosting.
        temperature: T.
        boost_beta: b while boosting; 0 for equal weights.
        compress_beta: b while compressing.
        compress_epochs: passes over the images of a phase while compressing; ``epochs`` counts those while boosting.
        answer: which network predicts, ``compressed`` (as in the paper) or ``boosted`` (as in the published code).
    """

    name = "foster"
    title = "FOSTER"

    epochs: int = 170
    base_epochs: int | None = 200
    milestones: tuple[float, ...] = ()
    strength: float = 1.0
    temperature: float = 2.0
    boost_beta: float = 0.94
    compress_beta: float = 0.97
    compress_epochs: int = 130
    answer: Literal["compressed", "boosted"] = "compressed"

    parts = (Boosting,)

    def stage(self, number: int, phase: Phase, epochs: int) -> Stage | None:
        boosted = self.part(Boosting).boosted
        if boosted is None or number > 1:
            return super().stage(number, phase, epochs)
        samples = self.memory.with_exemplars(phase)
        counts = torch.bincount(samples.labels.cpu(), minlength=self.network.head.classes)
        weights = effective_weights(counts, self.compress_beta if number else self.boost_beta).to(self.torch_device)
        if number == 0:
            return Stage(epochs, samples, loss=partial(self._boost, weights), module=boosted, trained=boosted.new)
        loss = partial(self._compress, boosted.eval().requires_grad_(False), weights)
        return Stage(self.compress_epochs, samples, loss=loss, recipe={"weight_decay": 0.0})

    def _boost(self, weights: Tensor, forward: Forward, batch: Batch) -> tuple[Tensor, int]:
        output: BoostedOutput = forward(self.network.normalise(batch.images[batch.mine]))
        labels = batch.labels[batch.mine]
        loss = boosting_loss(output, labels, weights, self.strength, self.temperature)
        return loss, int((output.logits.argmax(1) == labels).sum())

    def _compress(self, boosted: Boosted, weights: Tensor, forward: Forward, batch: Batch) -> tuple[Tensor, int]:
        x = self.network.normalise(batch.images[batch.mine])
        now: Output = forward(x)
        with torch.no_grad(), self.autocast():
            target: BoostedOutput = boosted(x)
        loss = distillation(now.logits, target.logits, self.temperature, weights)
        return loss, int((now.logits.argmax(1) == batch.labels[batch.mine]).sum())

    def loss(self, now: Output, before: Output | None, labels: Tensor, known: int) -> Tensor:
        return functional.cross_entropy(now.logits, labels)

    def head_scores(self, images: Tensor, output: Output) -> Tensor:
        boosted = self.part(Boosting).boosted
        if boosted is None:
            return output.logits
        return cast(BoostedOutput, boosted.eval()(self.network.normalise(images))).logits


def boosting_loss(said: BoostedOutput, labels: Tensor, weights: Tensor, strength: float, temperature: float) -> Tensor:
    """Return CE(o / w, y) + CE(o_new, y) + strength KD_T(o[old], before), for n images; weights w (classes,)."""
    kept = distillation(said.logits[:, : said.old.shape[1]], said.old, temperature)
    aligned = functional.cross_entropy(said.logits / weights, labels)
    return aligned + functional.cross_entropy(said.fresh, labels) + strength * kept
