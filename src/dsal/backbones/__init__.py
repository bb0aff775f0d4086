"""Backbones: networks that turn images into features, and their files of weights."""

from dsal.backbones import resnet  # noqa: F401  (registers its architectures)
from dsal.backbones.backbone import (
    ARCHITECTURES,
    FEATURES,
    Backbone,
    Card,
    channels_last,
    load_backbone,
    save_backbone,
    shipped_weights,
)

__all__ = [
    "ARCHITECTURES",
    "FEATURES",
    "Backbone",
    "Card",
    "channels_last",
    "load_backbone",
    "save_backbone",
    "shipped_weights",
]
