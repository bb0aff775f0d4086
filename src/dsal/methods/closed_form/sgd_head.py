"""A linear head trained phase by phase with SGD, without any measure against forgetting: the lower bound."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from dsal.errors import InputError
from dsal.methods.closed_form.kit.feature_method import (
    LINEAR,
    Array,
    ArrayMethod,
    Features,
    Labels,
    grown,
    keeps,
    nothing,
)


class SGDHead(ArrayMethod):
    """Softmax regression over all classes seen, trained in each phase on that phase's samples alone.

    Args:
        learning_rate: learning rate at the start of a phase, with a cosine decay to 0.
        epochs: passes over the samples of a phase.
        weight_decay: L2 penalty of weights and bias.
        seed: seed of the order of samples.
    """

    name = "sgd-head"
    title = "SGD head"

    learned = keeps(weights_=LINEAR)
    takes_returning_classes = True
    seed_varies = "the order of samples"
    trials = tuple({"learning_rate": rate, "epochs": epochs} for rate in (0.1, 0.01, 0.001) for epochs in (10, 3))

    def __init__(
        self, *, learning_rate: float = 0.1, epochs: int = 10, weight_decay: float = 5e-4, seed: int = 0
    ) -> None:
        check_training(learning_rate, epochs, weight_decay)
        self.learning_rate, self.epochs, self.weight_decay, self.seed = learning_rate, epochs, weight_decay, seed
        self.weights_: NDArray[np.float32] = nothing(dtype=np.float32)  # (c, d + 1)

    def _learn(self, X: Features, y: NDArray[np.int64], classes: Sequence[int]) -> None:
        seen = max(self.classes_seen, classes[-1] + 1)
        self.weights_ = train_linear(
            np.asarray(X, dtype=np.float64),
            y,
            grown(self.weights_, seen, X.shape[1] + 1),
            epochs=self.epochs,
            learning_rate=self.learning_rate,
            weight_decay=self.weight_decay,
            random=np.random.RandomState([self.seed, self.classes_seen]),
        )

    def _scores(self, X: Array) -> Array:
        return linear_scores(X, self.weights_)


BATCH = 128
MOMENTUM = 0.9


def check_training(learning_rate: float, epochs: int, weight_decay: float) -> None:
    """Raise :class:`InputError` if :func:`train_linear` cannot use these options."""
    if learning_rate <= 0.0 or epochs < 1 or weight_decay < 0.0:
        raise InputError(
            "learning_rate must be above 0, epochs 1 or more, weight_decay 0 or more; got "
            f"{learning_rate}, {epochs}, {weight_decay}"
        )


def train_linear(
    X: Array,
    y: Labels,
    start: NDArray[np.float32],
    *,
    epochs: int,
    learning_rate: float,
    weight_decay: float,
    random: np.random.RandomState,
) -> NDArray[np.float32]:
    """Return weights (c, d + 1) with the bias in the last column, after ``epochs`` with a cosine schedule.

    Args:
        X: samples (n, d).
        y: their classes (n,), below c.
        start: weights to begin with (c, d + 1).
        epochs: passes over the samples.
        learning_rate: learning rate at the start.
        weight_decay: L2 penalty of weights and bias.
        random: random state for the order of samples.
    """
    rows = np.hstack([X, np.ones((len(X), 1))]).astype(np.float32)
    weights = start.astype(np.float32)
    velocity = np.zeros_like(weights)
    steps = epochs * -(-len(X) // BATCH)
    step = 0
    for _ in range(epochs):
        order = random.permutation(len(X))
        for first in range(0, len(X), BATCH):
            batch = order[first : first + BATCH]
            x = rows[batch]
            excess = _softmax(x @ weights.T)
            excess[np.arange(len(batch)), y[batch]] -= 1.0  # the gradient of the cross-entropy w.r.t. the logits
            velocity = MOMENTUM * velocity + excess.T @ x / np.float32(len(batch)) + weight_decay * weights
            weights -= 0.5 * learning_rate * (1.0 + math.cos(math.pi * step / steps)) * velocity
            step += 1
    return weights


def _softmax(logits: NDArray[np.float32]) -> NDArray[np.float32]:
    powers: NDArray[np.float32] = np.exp(logits - logits.max(axis=1, keepdims=True))
    powers /= powers.sum(axis=1, keepdims=True)
    return powers


def linear_scores(X: Array, weights: NDArray[np.float32]) -> Array:
    """Return scores (n, c) of X (n, d) for weights (c, d + 1)."""
    if X.shape[1] + 1 != weights.shape[1]:
        raise InputError(f"expected features of shape (n, {weights.shape[1] - 1}), got {X.shape}")
    return X @ weights[:, :-1].T.astype(np.float64) + weights[:, -1]
