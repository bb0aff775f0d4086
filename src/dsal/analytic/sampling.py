"""A random sample of rows that depends on the rows alone: not on their order, their batches, or how often each occurs.

Every row gets a 64-bit key computed from its numbers and its label in exact integer arithmetic. The rows with the
smallest keys are the sample; the sum of all keys shows whether a second read returned the same rows.
"""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

Keys = NDArray[np.uint64]


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
