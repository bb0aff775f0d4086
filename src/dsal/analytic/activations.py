"""Activation functions by name, applied elementwise to the expanded features."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import torch
from torch import Tensor
from torch.nn import functional

from dsal.base.registry import Registry
from dsal.errors import InputError

Activation: TypeAlias = Callable[[Tensor], Tensor]

activations: Registry[Activation] = Registry("activation", group="dsal.activations")


def identity(z: Tensor) -> Tensor:
    """Return z."""
    return z


_BUILT_IN: dict[str, tuple[Activation, float]] = {  # name: function, largest slope
    "celu": (functional.celu, 1.0),
    "elu": (functional.elu, 1.0),
    "gelu": (functional.gelu, 1.13),
    "hardswish": (functional.hardswish, 1.5),
    "identity": (identity, 1.0),
    "leaky_relu": (functional.leaky_relu, 1.0),
    "mish": (functional.mish, 1.09),
    "relu": (torch.relu, 1.0),
    "selu": (functional.selu, 1.76),
    "sigmoid": (torch.sigmoid, 0.25),
    "silu": (functional.silu, 1.1),
    "sine": (torch.sin, 1.0),
    "softplus": (functional.softplus, 1.0),
    "softsign": (functional.softsign, 1.0),
    "tanh": (torch.tanh, 1.0),
}
for _name, (_function, _) in _BUILT_IN.items():
    activations.register(_name)(_function)


def slope_of(activation: Activation) -> float | None:
    """Return the largest slope of an activation; None if it is not one of this package."""
    return next((slope for function, slope in _BUILT_IN.values() if function is activation), None)


def resolve(activation: str | Activation) -> Activation:
    """Return the activation registered under a name; return a function unchanged.

    >>> resolve("relu")(torch.tensor([-1.0, 2.0])).tolist()
    [0.0, 2.0]
    """
    if callable(activation):
        return activation
    return activations.get(activation)


def apply(activation: Activation, z: Tensor) -> Tensor:
    """Return sigma(Z) for Z (n x d).

    Raises:
        InputError: sigma changed Z in place, or the result has another shape or type or is not finite.
    """
    version = z._version
    x = activation(z)
    if not isinstance(x, Tensor) or x.shape != z.shape or x.dtype != z.dtype:
        got = f"{tuple(x.shape)} {x.dtype}" if isinstance(x, Tensor) else type(x).__name__
        raise InputError(f"an activation must keep shape and dtype, here {tuple(z.shape)} {z.dtype}; it returned {got}")
    if z._version != version:
        raise InputError("an activation must not change its argument in place: the other stream needs it")
    if not torch.isfinite(x.sum()):
        raise InputError("the expanded features are not finite: check the scale of the features, and the activation")
    return x


def name_of(activation: str | Activation) -> str:
    """Return the name to save an activation by; raise :class:`InputError` for a function that is not registered."""
    if isinstance(activation, str):
        return activation
    name = activations.name_of(activation)
    if name is not None:
        return name
    raise InputError(
        f"the activation {activation!r} has no name to save it by: register it, "
        "dsal.analytic.activations.activations.register('my_name')(function), and pass the name"
    )
