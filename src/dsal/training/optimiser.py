"""The optimisers of a recipe."""

from __future__ import annotations

from torch import Tensor, nn
from torch.optim import SGD, Adam, Optimizer

from dsal.errors import UnknownNameError
from dsal.training.muon import Muon
from dsal.training.recipe import Recipe

STATE = {"momentum": "momentum_buffer", "mean": "exp_avg", "square": "exp_avg_sq", "step": "step"}
"""Optimiser state of a parameter: the names in a file, and torch's."""


def make_optimisers(model: nn.Module, recipe: Recipe) -> list[Optimizer]:
    """Create one optimiser, or two if convolutions have their own; each group stores its ``initial_lr``."""
    convolutions: list[Tensor] = []
    if recipe.optimiser == "muon":
        found = (module.weight for module in model.modules() if isinstance(module, nn.Conv2d))
        convolutions = [weight for weight in found if weight.requires_grad]
    elif recipe.optimiser not in ("adam", "sgd"):
        raise UnknownNameError("optimiser", recipe.optimiser, ("adam", "muon", "sgd"))
    separate = {id(weight) for weight in convolutions}
    rest = [parameter for parameter in model.parameters() if parameter.requires_grad and id(parameter) not in separate]
    optimisers: list[Optimizer] = [
        Adam(rest, recipe.lr, weight_decay=recipe.weight_decay)
        if recipe.optimiser == "adam"
        else SGD(rest, recipe.lr, recipe.momentum, weight_decay=recipe.weight_decay, nesterov=recipe.nesterov)
    ]
    if convolutions:
        optimisers.append(Muon(convolutions, recipe.muon_lr))
    for optimiser in optimisers:
        for group in optimiser.param_groups:
            group["initial_lr"] = group["lr"]
    return optimisers
