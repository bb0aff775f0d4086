"""The options of the streams, and the equations of a compensation stream: residue and cleansing."""

from __future__ import annotations

import math
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Literal, TypeGuard

import torch
from torch import Tensor

from dsal.analytic.activations import Activation
from dsal.errors import InputError

Auto = Literal["auto"]


@dataclass(frozen=True)
class Compensation:
    """Settings of a compensation stream.

    Attributes:
        activation: sigma_C.
        cleanse: previous label cleansing (PLC).
        gamma: its ridge penalty; None for that of the main stream, ``"auto"`` to choose it in the first phase.
    """

    activation: Activation = torch.tanh
    cleanse: bool = True
    gamma: float | Auto | None = None


def one_hot(columns: Tensor, which: Tensor) -> Tensor:
    """Return the targets Y (n x len(which)) of rows whose classes are ``columns`` (n,)."""
    return (columns[:, None] == which).double()


def residue(y: Tensor, fitted: Tensor) -> Tensor:
    """Return the part of the targets that the main stream does not explain, eq. (13): Y - X_M W_M."""
    return y - fitted


def cleansed(residue: Tensor, present: Tensor) -> Tensor:
    """Apply previous label cleansing (PLC), eq. (15): zero the columns of all classes that are not in the phase.

    Args:
        residue: (n x classes).
        present: columns of the classes in the phase.

    >>> cleansed(torch.tensor([[0.3, -0.2, 0.9]]), torch.tensor([2]))
    tensor([[0.0000, 0.0000, 0.9000]])
    """
    clean = torch.zeros_like(residue)
    clean[:, present] = residue[:, present]
    return clean


def is_auto(value: object) -> TypeGuard[Auto]:
    """Return whether the model is to choose this option."""
    return isinstance(value, str) and value == "auto"


def check_size(value: object) -> int:
    """Return d_B as an int of 1 or more."""
    if not isinstance(value, Integral) or isinstance(value, bool) or value < 1:
        raise InputError(f"expansion_size must be a positive integer, not {value!r}")
    return int(value)


def check_gamma(name: str, value: object) -> float | Auto:
    """Return a ridge penalty as a positive, finite float, or ``"auto"``."""
    return value if is_auto(value) else check_positive(name, value)


def check_positive(name: str, value: object) -> float:
    """Return a positive, finite number as a float."""
    if not isinstance(value, Real) or isinstance(value, bool) or not 0 < float(value) < math.inf:
        raise InputError(f'{name} must be a positive number or "auto", not {value!r}')
    return float(value)


def check_compensation(value: object) -> float | Auto | None:
    """Return C as a float of 0 or more, ``"auto"``, or None for the main stream alone."""
    if value is None or is_auto(value):
        return value
    if not isinstance(value, Real) or isinstance(value, bool) or not 0 <= float(value) < math.inf:
        raise InputError(
            f'compensation must be a number of 0 or more, "auto", or None for the main stream alone, not {value!r}'
        )
    return float(value)
