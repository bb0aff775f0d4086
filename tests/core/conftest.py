"""Real features as float64, and one joint solve on them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pytest
from numpy.typing import NDArray

from dsal.data.features import FeatureSet

from .oracle import Array, joint_weights, one_hot, relu


class Rows(NamedTuple):
    """2600 rows to learn, 26 of each of 100 classes, sorted by class; 400 more to look at."""

    x: Array
    y: NDArray[np.int64]
    new: Array
    new_y: NDArray[np.int64]

    def phase(self, start: int, stop: int) -> tuple[Array, NDArray[np.int64]]:
        """The rows of the classes from ``start`` to ``stop``."""
        chosen = (self.y >= start) & (self.y < stop)
        return self.x[chosen], self.y[chosen]


@pytest.fixture(scope="session")
def rows(sample: FeatureSet) -> Rows:
    x = np.concatenate([sample.train_x, sample.test_x]).astype(np.float64)
    y = np.concatenate([sample.train_y, sample.test_y]).astype(np.int64)
    order = np.argsort(y, kind="stable")
    x, y = x[order], y[order]
    learned = np.arange(len(y)) % 30 < 26
    return Rows(x[learned], y[learned], x[~learned], y[~learned])


class Joint(NamedTuple):
    """Ridge regression on the expanded rows, all at once."""

    x: Array  # (2600 x 2048)
    y: Array  # (2600 x 100) one-hot
    new: Array  # (400 x 2048)
    gamma: float
    weights: Array


@pytest.fixture(scope="session")
def joint(rows: Rows) -> Joint:
    projection = np.random.RandomState(0).uniform(-1 / 8, 1 / 8, (64, 2048))
    x, y = relu(rows.x @ projection), one_hot(rows.y, 100)
    return Joint(x, y, relu(rows.new @ projection), 0.1, joint_weights(x, y, 0.1))
