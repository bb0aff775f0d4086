"""Restore the state, bit for bit, after an error in the middle of learning."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from dsal.analytic.ridge import Ridge


@contextmanager
def unchanged(owner: object) -> Iterator[None]:
    """Restore the attributes of ``owner`` if the block raises, even by Ctrl-C."""
    before = dict(vars(owner))
    try:
        yield
    except BaseException:
        vars(owner).clear()
        vars(owner).update(before)
        raise


@contextmanager
def rollback(ridges: Sequence[Ridge]) -> Iterator[None]:
    """Restore the ridges, bit for bit, if the block raises, even by Ctrl-C.

    If the backend can, squares keep their copies in their own unused triangles, at no cost in memory. So blocks must
    not be nested: an inner one would overwrite the copies of the outer one.
    """
    before = [(r.targets, r.carried, r.solved, r.empty) for r in ridges]
    kept = [None if ridge.empty else ridge.backend.keep_(ridge.square) for ridge in ridges]
    try:
        for ridge in ridges:
            ridge.targets = ridge.targets.T.clone().T
        yield
    except BaseException:
        for ridge, state, copy in zip(ridges, before, kept, strict=True):
            ridge.targets, ridge.carried, ridge.solved, ridge.empty = state
            if copy is None:
                ridge.square.zero_().diagonal().fill_(math.sqrt(ridge.gamma))
            else:
                ridge.backend.restore_(ridge.square, copy)
        raise
