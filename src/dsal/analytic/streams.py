"""The equations of a compensation stream: residue and cleansing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from dsal.analytic.activations import Activation

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
