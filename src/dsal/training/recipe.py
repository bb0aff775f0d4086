"""Recipes of base training, as data: one frozen dataclass each, registered by name in one line."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

from dsal.backbones.stage_heads import BRANCHES
from dsal.base.registry import Registry, check_name
from dsal.errors import InputError
from dsal.training.augment import ROTATIONS, TRANSFORMS

CROPS = ("resized", "shift")


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """Everything that decides how a backbone is trained, apart from the data, the architecture and the seed.

    Attributes:
        epochs: passes over the base training data.
        batch_size: images per step.
        optimiser: ``"sgd"`` (momentum), ``"adam"``, or ``"muon"`` (orthogonalised steps for convolutions, SGD for the
            rest).
        lr: learning rate at its highest (SGD's, and that of the parameters Muon leaves to SGD).
        muon_lr: step length of Muon, relative to the norm of a weight.
        momentum: of SGD.
        nesterov: look ahead in the momentum step.
        weight_decay: L2 penalty of SGD and Adam.
        milestones: fractions of the training at which ``lr`` drops tenfold; empty: one cosine down to zero.
        warmup: fraction of the training over which the learning rate rises linearly from zero.
        label_smoothing: weight spread evenly over all classes.
        distillation: weight of the teachers' mean probabilities in the loss (Hinton et al., 2015).
        temperature: by which the scores of teacher and student are divided before their probabilities are compared.
        crop: ``"resized"``: images in files are read as parts of random size and shape (8% to 100% of the area, sides
            3:4 to 4:3), as is usual on ImageNet; ``"shift"``: images are shifted by up to 4 pixels, as images
            in memory always are.
        jitter: brightness, contrast and saturation change by a factor of up to 1 -/+ this; 0 for none.
        mirror: mirror half of the images; not for characters.
        trivial: fraction of the images that get TrivialAugmentWide, besides crop and flip.
        cutout: side of a blanked square in pixels; 0 for none.
        mixup: parameter of the Beta distribution of blends; 0 for none.
        rotation_share: fraction of each batch that is rotated by 90, 180 or 270 degrees and labelled as a class of its
            own (self-supervised label augmentation, as in PASS).
        auxiliary: kind of the auxiliary heads at the end of every stage: ``"convolution"`` (a few strided
            convolutions between map and head) or ``"pooled"`` (mean and deviation of each channel, one hidden layer);
            empty for none. They learn class and transform of all images.
        auxiliary_weight: of the mean loss of the auxiliary heads.
        transforms: names in :data:`dsal.training.augment.TRANSFORMS`: what the auxiliary heads tell apart.
        transform_share: fraction of each batch that is transformed; the head learns from the others only.
        relation: weight of the cross-entropy between the relations of the images in teachers and student
            (:func:`dsal.training.objective.relations`).
        average: decay per step of an exponential average of the weights, which becomes the result; 0 for none.
        views: number of epochs after which batches and augmentation repeat, so that teachers are asked once per view
            of an image and not in every epoch; 0: they never repeat.
        sizes: (fraction of the training, side in pixels), in order: images are resized to that side until that
            fraction is done, which makes early epochs cheap; then they have their own size.
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
    distillation: float = 0.0
    temperature: float = 1.0
    crop: str = "shift"
    jitter: float = 0.0
    mirror: bool = True
    trivial: float = 0.0
    cutout: int = 0
    mixup: float = 0.0
    rotation_share: float = 0.0
    auxiliary: str = ""
    auxiliary_weight: float = 1.0
    transforms: tuple[str, ...] = ()
    transform_share: float = 0.0
    relation: float = 0.0
    average: float = 0.0
    views: int = 0
    sizes: tuple[tuple[float, int], ...] = ()

    def __post_init__(self) -> None:
        check_name("crop", self.crop, CROPS)
        if not 0 <= self.jitter < 1:
            raise InputError(f"jitter must be at least 0 and less than 1, got {self.jitter}")
        if not self.temperature > 0:
            raise InputError(f"temperature must be positive, got {self.temperature}")
        if self.views < 0:
            raise InputError(f"views must not be negative, got {self.views}")
        if self.views and self.sizes:
            raise InputError("views repeat only at one size: a recipe has either views or sizes")
        self._check_auxiliary()

    def _check_auxiliary(self) -> None:
        if self.auxiliary:
            check_name("kind of auxiliary heads", self.auxiliary, BRANCHES)
        for name in self.transforms:
            check_name("transform", name, TRANSFORMS)
        if len({*self.transforms}) < len(self.transforms):
            raise InputError(f"transforms must differ, got {', '.join(self.transforms)}")
        if self.auxiliary_weight < 0 or self.relation < 0:
            raise InputError("auxiliary_weight and relation must not be negative")
        if bool(self.transforms) != (self.transform_share > 0) or not 0 <= self.transform_share < 1:
            raise InputError(
                f"transforms need a transform_share above 0 and below 1, and it needs them; got {self.transform_share} "
                f"and {len(self.transforms)} transforms"
            )
        if self.transforms and round(self.transform_share * self.batch_size) == self.batch_size:
            raise InputError("a transform_share this large leaves no upright image in a batch")
        if self.transforms and not self.auxiliary:
            raise InputError("transforms are told apart by auxiliary heads: choose their kind, auxiliary")
        if self.transforms and (self.mixup or self.rotation_share):
            raise InputError("transforms cannot be combined with mixup or rotation_share")

    def lr_factor(self, progress: float) -> float:
        """Return the learning rate at a fraction of the training in [0, 1), relative to its highest.

        >>> [RECIPES.get("paper").lr_factor(epoch / 160) for epoch in (0, 79, 80, 120)]
        [1.0, 1.0, 0.1, 0.01]
        """
        if progress < self.warmup:
            return progress / self.warmup
        if self.milestones:
            return float(10.0 ** -sum(progress >= milestone for milestone in self.milestones))
        return 0.5 * (1 + math.cos(math.pi * (progress - self.warmup) / (1 - self.warmup)))

    def size(self, progress: float) -> int | None:
        """Return the side of training images at a fraction of the training in [0, 1); ``None`` for their own size."""
        return next((side for until, side in self.sizes if progress < until), None)


RECIPES: Registry[Recipe] = Registry("recipe")

_MUON = Recipe(epochs=80, optimiser="muon", nesterov=True, warmup=0.05)
_STRONG = replace(_MUON, muon_lr=0.04, trivial=0.5, sizes=((0.3, 16), (0.65, 24)))
_TEACHER = replace(_STRONG, epochs=22, batch_size=512, lr=0.2, muon_lr=0.1, warmup=0.1)
_AGAIN = replace(_MUON, epochs=36, muon_lr=0.02, distillation=0.5, trivial=0.5, sizes=((0.3, 24),))
_DISTILLED = replace(_AGAIN, epochs=128, distillation=0.9, temperature=4.0, views=16, sizes=())
_HEADS: dict[str, Any] = {"auxiliary": "convolution", "transforms": ROTATIONS, "transform_share": 0.5}

RECIPES.register("paper")(Recipe(epochs=160, milestones=(0.5, 0.75)))
RECIPES.register("imagenet")(Recipe(epochs=90, milestones=(1 / 3, 2 / 3), weight_decay=1e-4, crop="resized"))
RECIPES.register("imagenet-strong")(
    Recipe(
        epochs=100,
        batch_size=256,
        lr=0.2,
        nesterov=True,
        weight_decay=5e-5,
        warmup=0.05,
        label_smoothing=0.1,
        crop="resized",
        trivial=0.5,
        average=0.9999,
        sizes=((0.3, 128), (0.7, 176)),
    )
)
RECIPES.register("strong")(_STRONG)
RECIPES.register("teacher")(_TEACHER)  # for ResNet-18: large batches, because Muon's steps are slow on wide layers
RECIPES.register("again")(_AGAIN)  # for weights of "strong", as start and as teacher
RECIPES.register("distilled")(_DISTILLED)  # for trained weights, with better teachers
RECIPES.register("heads")(replace(_STRONG, **_HEADS))  # with auxiliary heads that tell rotations apart
RECIPES.register("teacher-heads")(replace(_TEACHER, **_HEADS))
RECIPES.register("distilled-heads")(replace(_DISTILLED, **_HEADS))  # for weights of "heads", taught by "teacher-heads"
RECIPES.register("characters")(replace(_MUON, epochs=20, mirror=False, rotation_share=0.25, sizes=((0.6, 14),)))
