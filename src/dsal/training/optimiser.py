"""The optimisers a recipe asks for."""

from __future__ import annotations

from torch import Tensor, nn
from torch.optim import SGD, Optimizer

from dsal.errors import UnknownNameError
from dsal.training.muon import Muon
from dsal.training.recipe import Recipe


def make_optimisers(model: nn.Module, recipe: Recipe) -> list[Optimizer]:
    """One optimiser, or two where convolutions have their own; each group remembers its ``initial_lr``."""
    convolutions: list[Tensor] = []
    if recipe.optimiser == "muon":
        found = (module.weight for module in model.modules() if isinstance(module, nn.Conv2d))
        convolutions = [weight for weight in found if weight.requires_grad]
    elif recipe.optimiser != "sgd":
        raise UnknownNameError("optimiser", recipe.optimiser, ("muon", "sgd"))
    apart = {id(weight) for weight in convolutions}
    rest = [parameter for parameter in model.parameters() if parameter.requires_grad and id(parameter) not in apart]
    optimisers: list[Optimizer] = [
        SGD(rest, recipe.lr, recipe.momentum, weight_decay=recipe.weight_decay, nesterov=recipe.nesterov)
    ]
    if convolutions:
        optimisers.append(Muon(convolutions, recipe.muon_lr))
    for optimiser in optimisers:
        for group in optimiser.param_groups:
            group["initial_lr"] = group["lr"]
    return optimisers
