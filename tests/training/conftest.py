"""Small networks and trainings with auxiliary heads, for the tests of this folder."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from dsal.backbones import ARCHITECTURES, Backbone
from dsal.backbones.resnet import ResNet
from dsal.data import ImageData
from dsal.training import BaseTraining, Batch, Recipe
from dsal.training.augment import ROTATIONS, transformed
from dsal.training.objective import Outputs, all_outputs

CLASSES = (4, 0, 2)
TURNED = Recipe(
    epochs=3, batch_size=12, optimiser="muon", auxiliary="convolution", transforms=ROTATIONS, transform_share=0.5
)


@pytest.fixture(scope="module")
def small() -> Iterator[None]:
    """Networks of two and of three stages."""
    ARCHITECTURES.register("wide")(lambda channels: ResNet((1, 1), (16, 32), stem="3x3", in_channels=channels))
    ARCHITECTURES.register("two")(lambda channels: ResNet((1, 1), (4, 6), stem="3x3", in_channels=channels))
    ARCHITECTURES.register("three")(lambda channels: ResNet((1, 1, 1), (4, 5, 6), stem="3x3", in_channels=channels))
    yield
    for name in ("two", "three", "wide"):
        del ARCHITECTURES._entries[name]


@pytest.fixture(scope="module")
def noise(small: None) -> ImageData:
    """Images of five classes, and the small networks."""
    images = torch.randint(256, (75, 3, 12, 12), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    return ImageData(images, torch.arange(75) % 5)


def training(data: ImageData, recipe: Recipe = TURNED, architecture: str = "two", **options: object) -> BaseTraining:
    asked = {"classes": CLASSES, "held_out": 0.2, "device": torch.device("cpu"), **options}
    return BaseTraining(data, dataset="noise", class_order="natural", architecture=architecture, recipe=recipe, **asked)  # type: ignore[arg-type]


def taught(data: ImageData, architecture: str = "three", recipe: Recipe = TURNED) -> Backbone:
    """A teacher after an epoch, with its auxiliary heads."""
    made = training(data, replace(recipe, epochs=1), architecture, seed=7)
    list(made.epochs())
    return made.backbone({}, auxiliary=True)


def first_batch(made: BaseTraining) -> Batch:
    return Batch(made.train.images[:12], made.train.labels[:12], slice(None), 0.0, torch.Generator().manual_seed(3))


def answered(made: BaseTraining, batch: Batch) -> tuple[Tensor, Tensor, Outputs]:
    """The images that the objective makes of a batch, the transform of each, and what the network says to them."""
    generator = torch.Generator().set_state(batch.generator.get_state())
    images, which = transformed(batch.images, made.recipe.transforms, made.recipe.transform_share, generator)
    return made.model.normalise(images), which, all_outputs(made.model, made.model.normalise(images))
