"""All or nothing: an error in the middle of learning leaves every bit of the state as it was."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from dsal.ridge import Ridge


@contextmanager
def rollback(ridges: Sequence[Ridge]) -> Iterator[None]:
    """If the block raises, even by Ctrl-C, the ridges are what they were before, bit for bit.

    The squares keep their copies in their own unused triangles where the backend can (no memory), so blocks do not
    nest: an inner one would overwrite the copies of the outer one.
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
