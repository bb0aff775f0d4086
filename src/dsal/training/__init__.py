"""Base training of backbones."""

from dsal.training.device import choose_device, choose_precision
from dsal.training.loop import BaseTraining, EpochResult, StepProgress
from dsal.training.recipe import RECIPES, Recipe

__all__ = ["RECIPES", "BaseTraining", "EpochResult", "Recipe", "StepProgress", "choose_device", "choose_precision"]
