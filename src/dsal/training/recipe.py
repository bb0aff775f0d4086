"""Recipes of base training, as data: one frozen dataclass each, registered by name in one line."""

from __future__ import annotations

import math
from dataclasses import dataclass

from dsal.registry import Registry


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """Everything that decides how a backbone is trained, apart from the data, the architecture and the seed.

    Attributes:
        epochs: passes over the base training data.
        batch_size: images per step.
        optimiser: ``"sgd"`` (momentum) or ``"muon"`` (orthogonalised steps for convolutions, SGD for the rest).
        lr: learning rate at its highest (SGD's, and that of the parameters Muon leaves to SGD).
        muon_lr: step length of Muon, relative to the norm of a weight.
        momentum: of SGD.
        nesterov: look ahead in the momentum step.
        weight_decay: L2 penalty of SGD.
        milestones: shares of the training at which ``lr`` drops tenfold; empty: one cosine down to zero.
        warmup: share of the training over which the learning rate rises linearly from zero.
        label_smoothing: weight spread evenly over all classes.
        mirror: mirror half of the images; not for characters.
        trivial: share of the images that get TrivialAugmentWide, besides crop and flip.
        cutout: side of a blanked square in pixels; 0 for none.
        mixup: parameter of the Beta law of blends; 0 for none.
        rotation_share: share of each batch that is turned by 90, 180 or 270 degrees and labelled as a class of its
            own (self-supervised label augmentation, as in PASS).
        average: decay per step of an exponential average of the weights, which then is the result; 0 for none.
        sizes: (share of the training, side in pixels), in order: images are brought to that side until that share
            is done, which makes early epochs cheap; then they have their own size.
    """

    epochs: int
    batch_size: int = 128
    optimiser: str = "sgd"
    lr: float = 0.1
    muon_lr: float = 0.1
    momentum: float = 0.9
    nesterov: bool = False
    weight_decay: float = 5e-4
    milestones: tuple[float, ...] = ()
    warmup: float = 0.0
    label_smoothing: float = 0.0
    mirror: bool = True
    trivial: float = 0.0
    cutout: int = 0
    mixup: float = 0.0
    rotation_share: float = 0.0
    average: float = 0.0
    sizes: tuple[tuple[float, int], ...] = ()

    def lr_factor(self, progress: float) -> float:
        """Learning rate at a share of the training in [0, 1), relative to its highest.

        >>> [RECIPES.get("paper").lr_factor(epoch / 160) for epoch in (0, 79, 80, 120)]
        [1.0, 1.0, 0.1, 0.01]
        """
        if progress < self.warmup:
            return progress / self.warmup
        if self.milestones:
            return float(10.0 ** -sum(progress >= milestone for milestone in self.milestones))
        return 0.5 * (1 + math.cos(math.pi * (progress - self.warmup) / (1 - self.warmup)))

    def size(self, progress: float) -> int | None:
        """Side of the training images at a share of the training in [0, 1); ``None`` for their own size."""
        return next((side for until, side in self.sizes if progress < until), None)


RECIPES: Registry[Recipe] = Registry("recipe")

RECIPES.register("paper")(Recipe(epochs=160, milestones=(0.5, 0.75)))
RECIPES.register("imagenet")(Recipe(epochs=90, milestones=(1 / 3, 2 / 3), weight_decay=1e-4))
RECIPES.register("strong")(
    Recipe(
        epochs=80,
        optimiser="muon",
        muon_lr=0.04,
        nesterov=True,
        warmup=0.05,
        trivial=0.5,
        sizes=((0.3, 16), (0.65, 24)),
    )
)
RECIPES.register("characters")(
    Recipe(
        epochs=20, optimiser="muon", nesterov=True, warmup=0.05, mirror=False, rotation_share=0.25, sizes=((0.6, 14),)
    )
)
