"""Rows of features in memory-mapped files, of which only the requested rows are read."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, eq=False)
class MappedRows:
    """Rows (n, d), float16 or float32 on disk, read as float32.

    ``x[rows]`` reads rows, by slice or by index; ``np.asarray(x)`` reads all of them. :meth:`take` and
    :meth:`from_column` read nothing.

    Attributes:
        shards: consecutive arrays, ``size`` rows in each but the last.
        size: rows of a shard.
        total: rows of all shards.
        width: columns of a shard.
        chosen: int64, (n,), the selected rows; None for all of them.
        start: first column.
    """

    shards: tuple[NDArray[Any], ...]
    size: int
    total: int
    width: int
    chosen: NDArray[np.int64] | None = None
    start: int = 0

    dtype = np.dtype(np.float32)
    ndim = 2

    def __len__(self) -> int:
        return self.total if self.chosen is None else len(self.chosen)

    @property
    def shape(self) -> tuple[int, int]:
        """(n, d)."""
        return len(self), self.width - self.start

    def take(self, rows: slice | NDArray[np.int64]) -> MappedRows:
        """Return some of the rows, which stay on disk."""
        return replace(self, chosen=self._numbers(rows))

    def from_column(self, start: int) -> MappedRows:
        """Return the columns from ``start`` on, which stay on disk."""
        return replace(self, start=self.start + start)

    def __getitem__(self, rows: slice | NDArray[np.int64]) -> NDArray[np.float32]:
        numbers = self._numbers(rows)
        out = np.empty((len(numbers), self.width - self.start), dtype=np.float32)
        place = numbers // self.size
        for shard in np.unique(place):
            mine = np.flatnonzero(place == shard)
            inside = numbers[mine] - shard * self.size
            first, last = inside[0], inside[-1]
            if last - first == len(inside) - 1 and (np.diff(inside) == 1).all():  # consecutive: a slice is enough
                out[mine[0] : mine[-1] + 1] = self.shards[shard][first : last + 1, self.start :]
            else:
                out[mine] = self.shards[shard][inside, self.start :]
        return out

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        return np.asarray(self[:], dtype=dtype)

    def _numbers(self, rows: slice | NDArray[np.int64]) -> NDArray[np.int64]:
        if isinstance(rows, slice):
            own = np.arange(*rows.indices(len(self)))
        else:
            own = np.asarray(rows)
            if own.dtype == bool:
                own = np.flatnonzero(own)
            own = np.where(own < 0, own + len(self), own)
            if own.size and not 0 <= own.min() <= own.max() < len(self):
                raise IndexError(f"rows must be from 0 to {len(self) - 1}")
        return own if self.chosen is None else self.chosen[own]
