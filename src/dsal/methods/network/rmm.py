"""RMM: reinforced memory management (Liu et al., NeurIPS 2021), on iCaRL and on PODNet with AANets."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional

from dsal.errors import InputError
from dsal.files.tensors import flat, under
from dsal.methods.contract import Phase
from dsal.methods.network.aanets import PODNetAANets
from dsal.methods.network.icarl import ICaRL
from dsal.methods.network.kit.policy import Action, Policy, learn_policy, tilted
from dsal.methods.network.kit.replay import Herded, ReplayMethod
from dsal.training.sample import seed_of, shuffled_classes

PUBLISHED = {
    5: (0.8, 0.8, 0.6, 0.6, 0.6, 0.6),
    10: (0.7,) * 5 + (0.6,) * 4 + (0.7,) * 2,
    25: (0.7,) * 10 + (0.8,) * 5 + (0.9,) * 11,
}
"""m by phase, for K phases of CIFAR-100 after 50 base classes, as published for PODNet with AANets (c is 0 there)."""


@dataclass(kw_only=True, eq=False)
class RMM:
    """Options of a memory that trades room for new images against exemplars, by two actions per phase.

    The memory of a phase has room for the exemplars of the underlying method and for all new images. Of the room for
    ``phase_images`` new ones, a fraction m goes to exemplars: memory holds exemplars_per_class * classes +
    m * phase_images images, the same number of each class, and a phase uses a random fraction 1 - m of its images.
    New classes with a mean loss below the median keep 1 + c times as many exemplars, those above it 1 - c times. With
    m = c = 0 this is the underlying method.

    The actions are lists, as published after a search with reinforcement learning (phases beyond their end use the last
    entry), or come from a policy learned in phase 0 on tasks made of its classes, if it has two or more (see
    ``kit.policy``). More than ``exemplars_per_class`` images are kept: results are not comparable
    with methods that have no such room. Unlike the published code, a class at the median keeps as many exemplars as if
    c were 0, so that the total is unchanged; images of a phase are drawn without replacement, and exemplars are chosen
    among those drawn.

    Args:
        actions: ``published``, the lists below, or ``learned``.
        memory_shares: m of each phase.
        class_shares: c of each phase.
        phase_images: expected number of images in a phase: for CIFAR-100, 5000 in 5 phases, 1000 in 25.
        episodes: number of tasks to learn the policy on.
    """

    actions: Literal["published", "learned"] = "published"
    memory_shares: tuple[float, ...] = PUBLISHED[5]
    class_shares: tuple[float, ...] = (0.0,)
    phase_images: int = 5000
    episodes: int = 60


class ManagedMemory(Herded["_Options"]):
    """The memory of RMM: its actions decide on what a phase is trained on, and what it keeps; see :class:`RMM`."""

    def __init__(self, method: _Options) -> None:
        super().__init__(method)
        shares, tilts = method.memory_shares, method.class_shares
        if not shares or not tilts or not all(0 <= m < 1 for m in shares) or not all(-1 <= c <= 1 for c in tilts):
            raise InputError(f"memory_shares must be in [0, 1) and class_shares in [-1, 1], got {shares} and {tilts}")
        if method.phase_images < 0 or method.episodes < 1:
            raise InputError("phase_images must be 0 or more and episodes 1 or more")
        self.learned: Policy | None = None

    def action(self, phase: int, known: int, new: int) -> Action:
        """Return m and c of a phase with ``new`` classes after ``known`` ones; in phase 0, the listed values."""
        if self.learned is not None and known:
            return self.learned.best(known, new, self.method.exemplars_per_class * known, self.method.phase_images)
        m, c = (values[min(phase, len(values) - 1)] for values in (self.method.memory_shares, self.method.class_shares))
        return Action(m, c)

    def per_class(self, share: float, classes: int) -> int:
        """Return the number of exemplars per class if a fraction m of the room for new images goes to exemplars."""
        return (self.method.exemplars_per_class * classes + int(share * self.method.phase_images)) // classes

    def _now(self, phase: Phase) -> Action:
        return self.action(phase.index, self.method.classes_seen, len(phase.classes))

    def used(self, phase: Phase) -> Phase:
        """Return the phase with a fraction 1 - m of the images of each class; with all of them in phase 0."""
        fraction = self._now(phase).memory if self.method.classes_seen else 0.0  # m
        if not fraction:
            return phase
        labels = phase.samples.labels.cpu()
        generator = torch.Generator().manual_seed(seed_of(self.method.seed, 900_000 + phase.index))
        classes = shuffled_classes(labels, generator)
        rows = [own[: max(1, round((1 - fraction) * len(own)))] for own in classes]
        chosen = torch.cat(rows).sort().values.to(phase.samples.labels.device)
        return replace(phase, samples=phase.samples.take(chosen))

    def begin(self, phase: Phase) -> None:
        known = self.method.classes_seen
        if known:  # m may be smaller than in the previous phase: make room for new images
            self.exemplars.cut(self.per_class(self._now(phase).memory, known))

    def counts(self, phase: Phase) -> dict[int, int | None]:
        action, classes = self._now(phase), self.method.network.head.classes
        each = self.per_class(action.memory, classes)
        self.exemplars.cut(each)
        chosen = tilted(each, self._class_losses(phase) if action.tilt else {}, action.tilt)
        self.exemplars.per_class = max([each, *chosen.values()])
        return {label: chosen.get(label, each) for label in phase.classes}

    def _class_losses(self, phase: Phase) -> dict[int, float]:
        """Return the mean cross-entropy of the images of each class."""
        losses, labels = [], []
        for _, output, own in self.method.read(phase.samples):
            losses.append(functional.cross_entropy(output.logits, own, reduction="none").cpu())
            labels.append(own.cpu())
        values, classes = torch.cat(losses), torch.cat(labels)
        return {label: float(values[classes == label].mean()) for label in phase.classes}

    def end(self, phase: Phase) -> None:
        options = self.method
        if options.actions == "learned" and not self.method.classes_seen:
            features = functional.normalize(self.method.features_of(phase.samples)).cpu()
            labels = phase.samples.labels.cpu()
            self.learned = learn_policy(features, labels, options.exemplars_per_class, options.episodes, options.seed)

    def state(self) -> dict[str, Tensor]:
        own = {} if self.learned is None else flat({"policy": self.learned.state_dict()})
        return {**own, "per_class": torch.tensor(self.exemplars.per_class)}

    def restore(self, tensors: dict[str, Tensor]) -> None:
        if weights := under(tensors, "policy"):
            self.learned = Policy()
            self.learned.load_state_dict({name: value.cpu() for name, value in weights.items()})
        if "per_class" in tensors:
            self.exemplars.per_class = int(tensors["per_class"])


class _Options(RMM, ReplayMethod):
    """The options that :class:`ManagedMemory` reads."""


@dataclass(kw_only=True, eq=False)
class ICaRLRMM(RMM, ICaRL):
    """iCaRL with managed memory; see :class:`RMM` and :class:`~dsal.methods.network.icarl.ICaRL`."""

    name = "icarl-rmm"
    title = "iCaRL + RMM"

    policy = ManagedMemory

    class_shares: tuple[float, ...] = (0.0, 0.0, 0.1, 0.1, 0.1, 0.0)


@dataclass(kw_only=True, eq=False)
class PODNetAANetsRMM(RMM, PODNetAANets):
    """PODNet with AANets and managed memory; see :class:`RMM` and :class:`PODNetAANets`."""

    name = "rmm"
    title = "RMM"

    policy = ManagedMemory
