"""The options of every method that trains a network, and the recipe that follows from them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from dsal.errors import InputError
from dsal.training.recipe import Recipe


@dataclass(kw_only=True, eq=False)
class TrainingOptions:
    """How a network is trained in each phase.

    Args:
        epochs: passes over the images of a phase.
        base_epochs: passes in phase 0; ``epochs`` by default.
        base_lr: learning rate at the beginning of phase 0; ``lr`` by default.
        base_milestones: ``milestones`` of phase 0, if they differ.
        base_weight_decay: ``weight_decay`` of phase 0, if it differs.
        adapt_epochs: passes in phase 0 if the method starts from a network whose head does not fit.
        batch_size: images per step; all of them if a phase has fewer.
        optimiser: ``sgd`` or ``adam``.
        lr: learning rate at the beginning of a phase.
        milestones: fractions of a phase at which ``lr`` drops tenfold; empty for one cosine down to zero.
        momentum: momentum of SGD.
        weight_decay: L2 penalty.
        mirror: mirror half of the images; not for characters.
        trivial: fraction of the images that get TrivialAugmentWide, in addition to crop and flip.
        architecture: architecture of the network, if the method does not start from one.
        device: ``auto`` or the name of a device.
        precision: ``auto``, ``float32``, ``bfloat16`` or ``float16``.
        seed: seed of initial weights, batches and augmentation.
    """

    epochs: int = 160
    base_epochs: int | None = None
    base_lr: float | None = None
    base_milestones: tuple[float, ...] | None = None
    base_weight_decay: float | None = None
    adapt_epochs: int = 10
    batch_size: int = 128
    optimiser: Literal["sgd", "adam"] = "sgd"
    lr: float = 0.1
    milestones: tuple[float, ...] = (0.5, 0.75)
    momentum: float = 0.9
    weight_decay: float = 5e-4
    mirror: bool = True
    trivial: float = 0.0
    architecture: str = "resnet32"
    device: str = "auto"
    precision: str = "auto"
    seed: int = 0

    def __post_init__(self) -> None:
        if min(self.epochs, self.batch_size) < 1 or self.lr <= 0 or self.adapt_epochs < 0:
            raise InputError(
                "epochs and batch_size must be 1 or more, lr above 0, adapt_epochs 0 or more; got "
                f"{self.epochs}, {self.batch_size}, {self.lr}, {self.adapt_epochs}"
            )

    def recipe_of(self, epochs: int, images: int, *, base: bool) -> Recipe:
        """Return how to train for some epochs on a number of images, in phase 0 (``base``) or later."""
        recipe = Recipe(
            epochs=epochs,
            batch_size=min(self.batch_size, images),
            optimiser=self.optimiser,
            lr=self.lr,
            milestones=self.milestones,
            momentum=self.momentum,
            weight_decay=self.weight_decay,
            mirror=self.mirror,
            trivial=self.trivial,
        )
        own = {"lr": self.base_lr, "milestones": self.base_milestones, "weight_decay": self.base_weight_decay}
        given = {name: value for name, value in own.items() if value is not None}
        return replace(recipe, **given) if base else recipe  # type: ignore[arg-type]
