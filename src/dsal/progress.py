"""How far a piece of work has come."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

OnProgress = Callable[[int, int], None]
"""Called with (done, total); what they count is said where an ``OnProgress`` is taken."""


@dataclass(frozen=True)
class Progress:
    """Some of a piece of work is done.

    Attributes:
        done: units done.
        total: units in all.
        note: one short line about it, such as ``epoch 3/20  loss 1.25``.
    """

    done: int
    total: int
    note: str = ""
