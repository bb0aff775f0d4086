"""The ranks that work together, and how they communicate."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, distributed

T = TypeVar("T")
_CPU = torch.device("cpu")


@dataclass
class Traffic:
    """Bytes of the tensors that this rank has passed on since the team was formed."""

    reduced: int = 0  # summed on rank 0
    broadcast: int = 0  # from rank 0 to all


class Team:
    """Process number ``rank`` of ``size``. All ranks must call every method except :meth:`share` together.

    >>> Team(rank=0, size=3).share(10), Team(rank=2, size=3).share(10), Team(rank=2, size=3).share(1)
    (slice(0, 3, None), slice(6, 10, None), slice(0, 1, None))
    """

    def __init__(self, rank: int, size: int) -> None:
        self.rank, self.size = rank, size
        self.traffic = Traffic()

    @property
    def leads(self) -> bool:
        """Whether this is rank 0: the one that keeps the sums, prints and writes."""
        return self.rank == 0

    def share(self, n: int, unit: int = 1) -> slice:
        """Return this rank's part of ``n`` items: contiguous, possibly empty, in whole units."""
        units = -(-n // unit)
        start, stop = (units * rank // self.size * unit for rank in (self.rank, self.rank + 1))
        return slice(start, min(stop, n))

    def reduce_(self, tensor: Tensor) -> None:
        """Sum over all ranks, onto rank 0; on the others the content of ``tensor`` is undefined."""
        if self.size > 1:
            distributed.reduce(tensor, dst=0)
            self.traffic.reduced += tensor.nbytes

    def broadcast_(self, tensor: Tensor) -> None:
        """Send rank 0's ``tensor`` to all ranks."""
        if self.size > 1:
            distributed.broadcast(tensor, src=0)
            self.traffic.broadcast += tensor.nbytes

    def sum_(self, tensor: Tensor) -> Tensor:
        """Sum over all ranks, on all of them, in place; return ``tensor``."""
        if self.size > 1:
            distributed.all_reduce(tensor)
        return tensor

    def broadcast_result(self, make: Callable[[], T]) -> T:
        """Return on every rank what ``make()`` returned on rank 0; the others do not call it."""
        if self.size == 1:
            return make()
        result = [make() if self.leads else None]
        distributed.broadcast_object_list(result, src=0, device=_CPU)
        return result[0]  # type: ignore[return-value]  # it came from make()

    def gathered(self, value: T) -> list[T]:
        """Return the values of all ranks, in the order of ranks."""
        if self.size == 1:
            return [value]
        everyone: list[Any] = [None] * self.size
        distributed.all_gather_object(everyone, value)
        return everyone

    def rows(self, mine: NDArray[Any]) -> NDArray[Any]:
        """Return the rows of all ranks (n, ...), in the order of ranks, on all of them."""
        return mine if self.size == 1 else np.concatenate(self.gathered(mine))

    def wait(self) -> None:
        """Wait until all ranks are here."""
        self.sum_(torch.zeros(1))

    @contextmanager
    def leader_first(self) -> Iterator[None]:
        """Run the block on rank 0, then on all others at once, which find what rank 0 has fetched to a shared disk."""
        if not self.leads:
            self.wait()
        yield
        if self.leads:
            self.wait()


ALONE = Team(0, 1)
