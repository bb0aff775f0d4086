"""Base training of backbones."""

from dsal.training.checkpoint import load_checkpoint, save_checkpoint
from dsal.training.device import choose_device, choose_precision
from dsal.training.loop import BaseTraining, EpochResult, StepProgress
from dsal.training.recipe import RECIPES, Recipe

__all__ = [
    "RECIPES",
    "BaseTraining",
    "EpochResult",
    "Recipe",
    "StepProgress",
    "choose_device",
    "choose_precision",
    "load_checkpoint",
    "save_checkpoint",
]
