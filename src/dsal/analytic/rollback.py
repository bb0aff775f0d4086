"""Restore the state, bit for bit, after an error in the middle of learning."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from dsal.analytic.ridge import Ridge


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
