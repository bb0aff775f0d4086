"""Progress reports of long-running work."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

OnProgress = Callable[[int, int], None]
"""Called with (done, total); the function that takes an ``OnProgress`` documents the unit."""


@dataclass(frozen=True)
class Progress:
    """A report that part of the work is done.

    Attributes:
        done: units done.
        total: total units.
        note: a short status line, such as ``epoch 3/20  loss 1.25``.
    """

    done: int
    total: int
    note: str = ""
