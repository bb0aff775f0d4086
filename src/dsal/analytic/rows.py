"""The rows of a phase, in blocks that can be read several times, and a random sample of them.

The sample depends on the rows alone: not on their order, their batches, or how often each occurs. Every row gets a
64-bit key computed from its numbers and its label in exact integer arithmetic. The rows with the smallest keys are the
sample; the sum of all keys shows whether a second read returned the same rows.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dsal.analytic.ridge import IndefiniteError
from dsal.errors import InputError

Keys: TypeAlias = NDArray[np.uint64]

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


class RowKeys:
    """Keys of rows, by a seeded multiplicative hash.

    >>> keys = RowKeys(features=2, seed=0)
    >>> x, y = np.array([[1.0, 2.0], [0.0, 3.0]]), np.array(["cat", "dog"])
    >>> bool((keys(x, y) == keys(x[::-1], y[::-1])[::-1]).all()), bool(keys(x, y)[0] == keys(x, y)[1])
    (True, False)
    """

    def __init__(self, features: int, seed: int) -> None:
        random = np.random.RandomState(seed)
        self._multipliers = random.randint(0, 2**63, features, dtype=np.uint64) * np.uint64(2) + np.uint64(1)

    def __call__(self, x: NDArray[Any], y: NDArray[Any]) -> Keys:
        """Return the keys (n,) of rows x (n x features) with labels y (n,)."""
        bits = (np.asarray(x, dtype=np.float64, order="C") + 0.0).view(np.uint64)  # + 0.0: -0.0 is 0.0
        labels, inverse = np.unique(y, return_inverse=True)
        salts = np.array([_digest(label) for label in labels.tolist()], dtype=np.uint64)
        keys = (bits * self._multipliers).sum(1) + salts[inverse]
        for _ in range(2):  # mix the high bits, where the multiplication has its effect, into the low ones
            keys = (keys ^ (keys >> np.uint64(32))) * np.uint64(0x9E3779B97F4A7C15)
        mixed: Keys = keys ^ (keys >> np.uint64(32))
        return mixed


class RowSample:
    """The ``size`` different rows with the smallest keys among all rows added, each with the sum of its weights.

    Args:
        size: how many rows to pick.
        features: their width.
        seed: decides which are picked.

    Attributes:
        keys_of: gives rows their keys.
        x: the rows (m x features), in the order of their keys.
        y: their labels (m,).
        weight: the summed weight of each (m,).
    """

    def __init__(self, size: int, features: int, seed: int) -> None:
        self.size, self.keys_of = size, RowKeys(features, seed)
        self.keys: Keys = np.empty(0, dtype=np.uint64)
        self.x: NDArray[np.float64] = np.empty((0, features))
        self.y: NDArray[Any] = np.empty(0, dtype=object)
        self.weight: NDArray[np.float64] = np.empty(0)

    def add(self, x: NDArray[Any], y: NDArray[Any], weight: NDArray[np.float64]) -> Keys:
        """Add rows x (n x features) with labels y (n,) and weights (n,); return their keys (n,)."""
        keys = self.keys_of(x, y)
        everything = np.concatenate([self.keys, keys])
        smallest, first, inverse = np.unique(everything, return_index=True, return_inverse=True)
        total = np.zeros(len(smallest))
        np.add.at(total, inverse, np.concatenate([self.weight, weight]))
        first = first[: self.size]
        old, new = first[first < len(self.keys)], first[first >= len(self.keys)] - len(self.keys)
        order = np.argsort(np.concatenate([self.keys[old], keys[new]]))
        self.x = np.concatenate([self.x[old], x[new]])[order]
        self.y = np.concatenate([self.y[old], y[new].astype(object)])[order]
        self.keys, self.weight = smallest[: self.size], total[: self.size]
        return keys


def _digest(label: object) -> int:
    return int.from_bytes(hashlib.sha256(repr(label).encode()).digest()[:8], "little")


def pick(read: Reader, rows: int, seed: int, device: torch.device) -> Block:
    """Pick ``rows`` different rows of a phase, by their keys."""
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
def explain_indefinite(read: Reader) -> Iterator[None]:
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
