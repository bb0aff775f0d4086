"""A linear head trained phase by phase with SGD, without any measure against forgetting: the lower bound."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from dsal.methods.closed_form.kit.array_method import LINEAR, Array, ArrayMethod, grown, keeps, nothing
from dsal.methods.closed_form.kit.feature_method import Features
from dsal.methods.closed_form.kit.linear_sgd import check_training, linear_scores, train_linear


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
