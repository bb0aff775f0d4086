"""A ridge as plain arrays, and back, bit for bit."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
import torch

from dsal.blas import Array, Backend
from dsal.errors import InputError
from dsal.ridge import Ridge


def pack(ridge: Ridge) -> dict[str, Array]:
    """What learning on needs: U packed into ``factor``, d (d + 1) / 2 numbers, and Q^T as ``targets``.

    Where W has come along with updates, W^T too as ``weights``, and the mark ``carried``.
    """
    state: dict[str, Array] = {"factor": ridge.backend.pack(ridge.square), "targets": ridge.targets.T.cpu().numpy()}
    if ridge.carried is not None:
        state |= {"weights": ridge.carried.T.cpu().numpy(), "carried": np.ones(1)}
    return state


def unpack(state: Mapping[str, Array], gamma: float, backend: Backend) -> Ridge:
    """Return the ridge that :func:`pack` packed; with W^T as ``weights`` in ``state``, W is not solved again."""
    ridge = Ridge(state["targets"].shape[1], gamma, backend)
    ridge.square = backend.unpack(state["factor"], ridge.size)
    if ridge.square.diagonal().abs().min() < 0.5 * math.sqrt(gamma):  # of a factor of G + gamma I no pivot is smaller
        raise InputError("the factor is not one of G + gamma I")
    ridge.targets = torch.from_numpy(state["targets"]).to(backend.device).T
    if "weights" in state:
        weights = torch.from_numpy(state["weights"]).to(backend.device).T
        ridge.carried, ridge.solved = (weights, None) if "carried" in state else (None, weights)
    ridge.empty = False
    return ridge
