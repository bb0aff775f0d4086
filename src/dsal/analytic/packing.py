"""Convert a ridge to plain arrays and back, bit for bit; join and split groups of named arrays."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
import torch

from dsal.analytic.ridge import Ridge
from dsal.errors import InputError
from dsal.linalg.backend import Array, Backend


def pack(ridge: Ridge) -> dict[str, Array]:
    """Return what further learning needs: U packed into ``factor``, d (d + 1) / 2 numbers, and Q^T as ``targets``.

    If updates have carried W along, add W^T as ``weights`` and the marker ``carried``.
    """
    state: dict[str, Array] = {"factor": ridge.backend.pack(ridge.square), "targets": ridge.targets.T.cpu().numpy()}
    if ridge.carried is not None:
        state |= {"weights": ridge.carried.T.cpu().numpy(), "carried": np.ones(1)}
    return state


def unpack(state: Mapping[str, Array], gamma: float, backend: Backend) -> Ridge:
    """Return the ridge that :func:`pack` packed; with W^T as ``weights`` in ``state``, W is not solved for again."""
    ridge = Ridge(state["targets"].shape[1], gamma, backend)
    ridge.square = backend.unpack(state["factor"], ridge.size)
    if ridge.square.diagonal().abs().min() < 0.5 * math.sqrt(gamma):  # a factor of G + gamma I has no smaller pivot
        raise InputError("the factor is not one of G + gamma I")
    ridge.targets = torch.from_numpy(state["targets"]).to(backend.device).T
    if "weights" in state:
        weights = torch.from_numpy(state["weights"]).to(backend.device).T
        ridge.carried, ridge.solved = (weights, None) if "carried" in state else (None, weights)
    ridge.empty = False
    return ridge


def flat(parts: Mapping[str, Mapping[str, Array]]) -> dict[str, Array]:
    """Return the arrays of all parts, each named ``part.name``."""
    return {f"{part}.{name}": array for part, arrays in parts.items() for name, array in arrays.items()}


def parted(arrays: Mapping[str, Array]) -> dict[str, dict[str, Array]]:
    """Return the parts that :func:`flat` joined."""
    parts: dict[str, dict[str, Array]] = {}
    for name, array in arrays.items():
        part, _, rest = name.partition(".")
        parts.setdefault(part, {})[rest] = array
    return parts
