"""The optimisers of a recipe; among them Muon, for convolutions followed by a normalisation (Jordan et al., 2024)."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor, nn
from torch.optim import SGD, Adam, Optimizer

from dsal.errors import UnknownNameError
from dsal.training.recipe import Recipe


def orthogonalise(matrix: Tensor, steps: int = 3) -> Tensor:
    """Push all singular values towards 1 by Newton-Schulz iterations; keeps the singular vectors.

    Args:
        matrix: (rows, columns).
        steps: iterations of the quintic x -> a x + b x^3 + c x^5.
    """
    a, b, c = 3.4445, -4.7750, 2.0315
    x: Tensor = matrix / (torch.linalg.vector_norm(matrix) + 1e-7)
    tall = x.shape[0] > x.shape[1]
    if tall:
        x = x.T
    for _ in range(steps):
        gram = x @ x.T
        x = a * x + (b * gram + c * gram @ gram) @ x
    return x.T if tall else x


class Muon(torch.optim.Optimizer):
    """Muon for weights whose scale does not matter (a normalisation follows): their norm is kept fixed.

    Args:
        params: convolution weights, (out, in, h, w) each, taken as matrices (out, in*h*w).
        lr: length of a step; the norm of a weight is sqrt(out).
        momentum: of the gradient, with Nesterov's look-ahead.
    """

    def __init__(self, params: Iterable[Tensor], lr: float, momentum: float = 0.6) -> None:
        super().__init__(params, {"lr": lr, "momentum": momentum})

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """Take one step."""
        for group in self.param_groups:
            for weight in group["params"]:
                buffer = self.state[weight].setdefault("momentum_buffer", torch.zeros_like(weight))
                buffer.mul_(group["momentum"]).add_(weight.grad)
                ahead = weight.grad.add(buffer, alpha=group["momentum"])
                weight.mul_(len(weight) ** 0.5 / torch.linalg.vector_norm(weight))
                weight.sub_(orthogonalise(ahead.flatten(1)).view_as(weight), alpha=group["lr"])


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
