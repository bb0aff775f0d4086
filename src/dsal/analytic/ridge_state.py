"""The state of a ridge: restored bit for bit after an error, and converted to plain arrays and back."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import numpy as np
import torch

from dsal.analytic.ridge import Ridge
from dsal.errors import InputError
from dsal.linalg.backend import Array, Backend


@contextmanager
def rollback(ridges: Sequence[Ridge], *owners: object) -> Iterator[None]:
    """Restore the ridges and the attributes of the owners, bit for bit, if the block raises, even by Ctrl-C.

    If the backend can, squares hold their copies in their own unused triangles, at no cost in memory. So blocks must
    not be nested for the same ridges: an inner one would overwrite the copies of the outer one.
    """
    attributes = [dict(vars(owner)) for owner in owners]
    before = [(r.targets, r.carried, r.solved, r.empty) for r in ridges]
    copies = [None if ridge.empty else ridge.backend.backup_(ridge.square) for ridge in ridges]
    try:
        for ridge in ridges:
            ridge.targets = ridge.targets.T.clone().T
        yield
    except BaseException:
        for ridge, state, copy in zip(ridges, before, copies, strict=True):
            ridge.targets, ridge.carried, ridge.solved, ridge.empty = state
            if copy is None:
                ridge.square.zero_().diagonal().fill_(math.sqrt(ridge.gamma))
            else:
                ridge.backend.restore_(ridge.square, copy)
        for owner, values in zip(owners, attributes, strict=True):
            vars(owner).clear()
            vars(owner).update(values)
        raise


def pack_ridge(ridge: Ridge) -> dict[str, Array]:
    """Return what further learning needs: U packed into ``factor``, d (d + 1) / 2 numbers, and Q^T as ``targets``.

    If updates have carried W along, add W^T as ``weights`` and the marker ``carried``.
    """
    state: dict[str, Array] = {"factor": ridge.backend.pack(ridge.square), "targets": ridge.targets.T.cpu().numpy()}
    if ridge.carried is not None:
        state |= {"weights": ridge.carried.T.cpu().numpy(), "carried": np.ones(1)}
    return state


def unpack_ridge(state: Mapping[str, Array], gamma: float, backend: Backend) -> Ridge:
    """Return the ridge that :func:`pack_ridge` packed; if the state has W^T as ``weights``, W is not solved for."""
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
