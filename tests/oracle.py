"""The paper, word for word: slow, with explicit inverses, a whole phase at a time. The package must agree with it."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def joint_weights(x: Array, y: Array, gamma: float) -> Array:
    """Eq. (9): one ridge regression on all rows at once."""
    return np.linalg.solve(x.T @ x + gamma * np.eye(x.shape[1]), x.T @ y)


def one_hot(labels: NDArray[np.int64], classes: int) -> Array:
    return np.eye(classes)[labels]


def relu(z: Array) -> Array:
    return np.maximum(z, 0.0)


class PaperDSAL:
    """Equations (3) to (19), for phases that bring new classes only, numbered in order of arrival."""

    def __init__(self, projection: Array, gamma: float, gamma_comp: float) -> None:
        self.projection = projection  # X_B
        self.gamma, self.gamma_comp = gamma, gamma_comp
        self.classes = 0

    def learn(self, features: Array, labels: NDArray[np.int64]) -> None:
        eye = np.eye(self.projection.shape[1])
        old, classes = self.classes, int(labels.max()) + 1
        x_main = relu(features @ self.projection)  # (3), (7)
        x_comp = np.tanh(features @ self.projection)  # (14)
        y = one_hot(labels, classes)  # [0 Y_k]
        if old == 0:
            self.r_main = np.linalg.inv(x_main.T @ x_main + self.gamma * eye)  # (10)
            self.w_main = self.r_main @ x_main.T @ y  # (5)
            residue = y - x_main @ self.w_main  # (13); PLC does not apply
            self.r_comp = np.linalg.inv(x_comp.T @ x_comp + self.gamma_comp * eye)
            self.w_comp = self.r_comp @ x_comp.T @ residue
        else:
            self.r_main = recursion(self.r_main, x_main)  # (12)
            self.w_main = correction(self.w_main, self.r_main, x_main, y)  # (11)
            residue = y - x_main @ self.w_main  # (13)
            residue[:, :old] = 0.0  # (15)
            self.r_comp = recursion(self.r_comp, x_comp)  # (18)
            self.w_comp = correction(self.w_comp, self.r_comp, x_comp, residue)  # (17)
        self.classes = classes

    def logits(self, features: Array, compensation: float) -> Array:
        z = features @ self.projection
        return relu(z) @ self.w_main + compensation * (np.tanh(z) @ self.w_comp)  # (19)


def recursion(r: Array, x: Array) -> Array:
    """R_k of eqs. (12) and (18)."""
    return r - r @ x.T @ np.linalg.inv(np.eye(len(x)) + x @ r @ x.T) @ x @ r


def correction(w: Array, r: Array, x: Array, y: Array) -> Array:
    """W^(k) of eqs. (11) and (17), from W^(k-1) with zero columns appended."""
    w = np.hstack([w, np.zeros((len(w), y.shape[1] - w.shape[1]))])
    return w + r @ x.T @ (y - x @ w)


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


class Joint(NamedTuple):
    """Ridge regression on the expanded rows, all at once."""

    x: Array  # (2600 x 2048)
    y: Array  # (2600 x 100) one-hot
    new: Array  # (400 x 2048)
    gamma: float
    weights: Array
