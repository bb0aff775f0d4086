"""Backbones: networks that turn images into features, and their files of weights."""

from dsal.backbones import resnet  # noqa: F401  (registers its architectures)
from dsal.backbones.backbone import (
    ARCHITECTURES,
    Backbone,
    Card,
    auxiliary_heads,
    channels_last,
    load_backbone,
    save_backbone,
    shipped_weights,
    without_auxiliary,
)
from dsal.backbones.pooling import KINDS

__all__ = [
    "ARCHITECTURES",
    "KINDS",
    "Backbone",
    "Card",
    "auxiliary_heads",
    "channels_last",
    "load_backbone",
    "save_backbone",
    "shipped_weights",
    "without_auxiliary",
]
