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

activations.register("celu")(functional.celu)
activations.register("elu")(functional.elu)
activations.register("gelu")(functional.gelu)
activations.register("hardswish")(functional.hardswish)
activations.register("leaky_relu")(functional.leaky_relu)
activations.register("mish")(functional.mish)
activations.register("relu")(torch.relu)
activations.register("selu")(functional.selu)
activations.register("sigmoid")(torch.sigmoid)
activations.register("silu")(functional.silu)
activations.register("sine")(torch.sin)
activations.register("softplus")(functional.softplus)
activations.register("softsign")(functional.softsign)
activations.register("tanh")(torch.tanh)


@activations.register("identity")
def identity(z: Tensor) -> Tensor:
    """Return z."""
    return z


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
