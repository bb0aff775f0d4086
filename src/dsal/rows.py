"""Rows on their way into the learner: blocks of a phase, read as often as learning needs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dsal.sampling import RowKeys, RowSample


class Block(NamedTuple):
    """Some rows of a phase."""

    features: Tensor  # (n x d_in) float64
    columns: Tensor  # (n,) int64, the column of each row's class
    weight: Tensor | None = None  # (n,) float64; None: all one

    def weighted(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """Rows X and targets Y times the root of their weight: a row of weight 2 counts as two equal rows."""
        if self.weight is None:
            return x, y
        root = self.weight.sqrt()[:, None]
        return x * root, y * root

    def cut(self, rows: slice) -> Block:
        """Some of the rows."""
        return Block(self.features[rows], self.columns[rows], None if self.weight is None else self.weight[rows])

    @property
    def share(self) -> Tensor:
        """What leaving one row out takes away (n,): of a weight above 1, one unit."""
        return torch.ones_like(self.features[:, 0]) if self.weight is None else self.weight.clamp_max(1.0)


Reader: TypeAlias = Callable[[int], Iterator[Block]]
"""Yields the same rows at every call, in blocks of the size asked for (the last may be smaller)."""


@dataclass(frozen=True, eq=False)
class PhaseRows:
    """What the learner needs to know about a phase.

    Attributes:
        read: yields its rows.
        rows: how many there are.
        present: the columns of its classes (int64), ascending.
        classes: how many columns there are from now on.
        sample: some of its rows, picked by their content; None lets the learner pick them if it needs any.
    """

    read: Reader
    rows: int
    present: Tensor
    classes: int
    sample: Block | None = None


def from_arrays(X: NDArray[Any], columns: NDArray[np.int64], device: torch.device) -> Reader:
    """Read features X (n x d_in) and their columns (n,), in float64 on a device."""

    def read(size: int) -> Iterator[Block]:
        for start in range(0, len(X), size):
            some = slice(start, start + size)
            features = torch.from_numpy(np.asarray(X[some], dtype=np.float64)).to(device)
            yield Block(features, torch.from_numpy(columns[some]).to(device))

    return read


def to_block(x: NDArray[Any], columns: NDArray[np.int64], weight: NDArray[np.float64], device: torch.device) -> Block:
    """Rows as the learner wants them: float64 tensors on the device that computes."""
    return Block(
        torch.tensor(x, dtype=torch.float64, device=device),
        torch.tensor(columns, device=device),
        None if (weight == 1.0).all() else torch.tensor(weight, device=device),
    )


def pick(read: Reader, rows: int, seed: int, device: torch.device) -> Block:
    """Pick ``rows`` different rows of a phase, by a rule that depends on the rows alone: see :mod:`dsal.sampling`."""
    keys = sample = None
    for block in read(8192):
        x, y = block.features.cpu().numpy(), block.columns.cpu().numpy()
        weight = np.ones(len(x)) if block.weight is None else block.weight.cpu().numpy()
        keys, sample = keys or RowKeys(x.shape[1], seed), sample or RowSample(rows, x.shape[1])
        sample.add(keys(x, y), x, y, weight)
    if sample is None:
        raise ValueError("a phase has at least one row")
    return to_block(sample.x, sample.y.astype(np.int64), sample.weight, device)
