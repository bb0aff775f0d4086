"""Base training of backbones."""

from dsal.training.checkpoint import load_checkpoint, save_checkpoint
from dsal.training.device import choose_device, choose_precision
from dsal.training.fit import Batch, Fit, Forward, Loss
from dsal.training.loop import BaseTraining, EpochResult
from dsal.training.recipe import RECIPES, Recipe

__all__ = [
    "RECIPES",
    "BaseTraining",
    "Batch",
    "EpochResult",
    "Fit",
    "Forward",
    "Loss",
    "Recipe",
    "choose_device",
    "choose_precision",
    "load_checkpoint",
    "save_checkpoint",
]
