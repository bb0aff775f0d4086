"""A linear head trained phase by phase with SGD, without any measure against forgetting: the lower bound."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

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

BATCH = 128
MOMENTUM = 0.9


@dataclass(frozen=True)
class LinearTraining:
    """How a linear softmax head is trained, like the last layer of a network on its own, with a cosine schedule.

    Args:
        learning_rate: learning rate at the start.
        epochs: passes over the samples.
        weight_decay: L2 penalty of weights and bias.
    """

    learning_rate: float
    epochs: int
    weight_decay: float

    def __post_init__(self) -> None:
        if self.learning_rate <= 0.0 or self.epochs < 1 or self.weight_decay < 0.0:
            raise InputError(
                "learning_rate must be above 0, epochs 1 or more, weight_decay 0 or more; got "
                f"{self.learning_rate}, {self.epochs}, {self.weight_decay}"
            )

    def run(
        self, X: Array, y: Labels, start: NDArray[np.float32], random: np.random.RandomState
    ) -> NDArray[np.float32]:
        """Return weights (c, d + 1) with the bias in the last column.

        The steps are written out: at this size, most of the time of a general optimiser would be overhead.

        Args:
            X: samples (n, d).
            y: their classes (n,), below c.
            start: weights to begin with (c, d + 1).
            random: random state for the order of samples.
        """
        rows = np.hstack([X, np.ones((len(X), 1))]).astype(np.float32)
        weights = start.astype(np.float32)
        velocity = np.zeros_like(weights)
        steps = self.epochs * -(-len(X) // BATCH)
        step = 0
        for _ in range(self.epochs):
            order = random.permutation(len(X))
            for first in range(0, len(X), BATCH):
                batch = order[first : first + BATCH]
                x = rows[batch]
                excess = _softmax(x @ weights.T)
                excess[np.arange(len(batch)), y[batch]] -= 1.0  # the gradient of the cross-entropy w.r.t. the logits
                velocity = MOMENTUM * velocity + excess.T @ x / np.float32(len(batch)) + self.weight_decay * weights
                weights -= 0.5 * self.learning_rate * (1.0 + math.cos(math.pi * step / steps)) * velocity
                step += 1
        return weights


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
        self.learning_rate, self.epochs, self.weight_decay, self.seed = learning_rate, epochs, weight_decay, seed
        self._training = LinearTraining(learning_rate, epochs, weight_decay)
        self.weights_: NDArray[np.float32] = nothing(dtype=np.float32)  # (c, d + 1)

    def _learn(self, X: Features, y: NDArray[np.int64], classes: Sequence[int]) -> None:
        start = grown(self.weights_, max(self.classes_seen, classes[-1] + 1), X.shape[1] + 1)
        random = np.random.RandomState([self.seed, self.classes_seen])
        self.weights_ = self._training.run(np.asarray(X, dtype=np.float64), y, start, random)

    def _scores(self, X: Array) -> Array:
        return linear_scores(X, self.weights_)


def _softmax(logits: NDArray[np.float32]) -> NDArray[np.float32]:
    powers: NDArray[np.float32] = np.exp(logits - logits.max(axis=1, keepdims=True))
    powers /= powers.sum(axis=1, keepdims=True)
    return powers


def linear_scores(X: Array, weights: NDArray[np.float32]) -> Array:
    """Return scores (n, c) of X (n, d) for weights (c, d + 1)."""
    if X.shape[1] + 1 != weights.shape[1]:
        raise InputError(f"expected features of shape (n, {weights.shape[1] - 1}), got {X.shape}")
    return X @ weights[:, :-1].T.astype(np.float64) + weights[:, -1]
