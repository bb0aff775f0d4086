"""Blocks of rows of a phase, which the learner can read several times."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dsal.analytic.ridge import IndefiniteError
from dsal.analytic.sampling import RowSample
from dsal.errors import InputError

_OUTLIER = 1e4  # times the largest feature of a typical row: a value that is wrong rather than large


class Block(NamedTuple):
    """Some rows of a phase."""

    features: Tensor  # (n x d_in) float64
    columns: Tensor  # (n,) int64, the column of each row's class
    weight: Tensor | None = None  # (n,) float64; None: all one

    def weighted(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """Return X and Y times the square root of the rows' weights: a row of weight 2 counts as two equal rows."""
        if self.weight is None:
            return x, y
        root = self.weight.sqrt()[:, None]
        return x * root, y * root

    def cut(self, rows: slice) -> Block:
        """Return the block of some of the rows."""
        return Block(self.features[rows], self.columns[rows], None if self.weight is None else self.weight[rows])

    @staticmethod
    def joined(blocks: Sequence[Block]) -> Block:
        """Return one block with the rows of several."""
        if len(blocks) == 1:
            return blocks[0]
        plain = all(block.weight is None for block in blocks)
        weights = [torch.ones_like(b.features[:, 0]) if b.weight is None else b.weight for b in blocks]
        features, columns = torch.cat([b.features for b in blocks]), torch.cat([b.columns for b in blocks])
        return Block(features, columns, None if plain else torch.cat(weights))

    @property
    def removable(self) -> Tensor:
        """Weight removed by leaving each row out (n,): of a weight above 1, one unit."""
        return torch.ones_like(self.features[:, 0]) if self.weight is None else self.weight.clamp_max(1.0)


Reader: TypeAlias = Callable[[int], Iterator[Block]]
"""Yields the same rows at every call, in blocks of the requested size (the last may be smaller)."""


@dataclass(frozen=True, eq=False)
class PhaseRows:
    """What the learner needs to know about a phase.

    Attributes:
        read: yields its rows.
        rows: number of rows.
        present: the columns of its classes (int64), ascending.
        classes: number of columns from now on.
        sample: some of its rows, picked by their content; if None, the learner picks them when it needs any.
    """

    read: Reader
    rows: int
    present: Tensor
    classes: int
    sample: Block | None = None


def from_arrays(X: NDArray[Any], columns: NDArray[np.int64], device: torch.device) -> Reader:
    """Return a reader of features X (n x d_in) and their columns (n,), in float64 on a device."""

    def read(size: int) -> Iterator[Block]:
        for start in range(0, len(X), size):
            some = slice(start, start + size)
            features = torch.from_numpy(np.asarray(X[some], dtype=np.float64)).to(device)
            yield Block(features, torch.from_numpy(columns[some]).to(device))

    return read


def to_block(x: NDArray[Any], columns: NDArray[np.int64], weight: NDArray[np.float64], device: torch.device) -> Block:
    """Return rows as a block for the learner: float64 features on the given device."""
    return Block(
        torch.tensor(x, dtype=torch.float64, device=device),
        torch.tensor(columns, device=device),
        None if (weight == 1.0).all() else torch.tensor(weight, device=device),
    )


def regrouped(blocks: Iterable[Block], size: int) -> Iterator[Block]:
    """Yield the same rows in blocks of ``size``; the last may be smaller."""
    pending: list[Block] = []
    count = 0
    for block in blocks:
        pending.append(block)
        count += len(block.columns)
        if count >= size:
            rows, full = Block.joined(pending), count - count % size
            yield from (rows.cut(slice(start, start + size)) for start in range(0, full, size))
            pending, count = [rows.cut(slice(full, count))] if count > full else [], count - full
    if count:
        yield Block.joined(pending)


def pick(read: Reader, rows: int, seed: int, device: torch.device) -> Block:
    """Pick ``rows`` different rows of a phase, by a rule that depends on the rows alone: see ``sampling``."""
    sample = None
    for block in read(8192):
        x, y = block.features.cpu().numpy(), block.columns.cpu().numpy()
        weight = np.ones(len(x)) if block.weight is None else block.weight.cpu().numpy()
        sample = sample or RowSample(rows, x.shape[1], seed)
        sample.add(x, y, weight)
    if sample is None:
        raise ValueError("a phase has at least one row")
    return to_block(sample.x, sample.y.astype(np.int64), sample.weight, device)


@contextmanager
def blaming(read: Reader) -> Iterator[None]:
    """Explain what is wrong with the features if a phase makes its matrix indefinite."""
    try:
        yield
    except IndefiniteError as error:
        peaks = torch.cat([block.features.abs().amax(1).cpu() for block in read(8192)])
        row, largest, typical = int(peaks.argmax()), float(peaks.max()), float(peaks.median())
        if largest < _OUTLIER * typical:
            raise IndefiniteError(f"gamma is too small for features of this size (up to {largest:.2g})") from error
        raise InputError(
            f"the features of this phase differ too much in size for float64: one in row {row}, counted from 0, is "
            f"{largest:.2g}, while the largest of a typical row is {typical:.2g}. Correct or remove such rows, or "
            "standardise the features"
        ) from error
