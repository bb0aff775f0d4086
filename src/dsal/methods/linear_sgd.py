"""A linear softmax head trained by stochastic gradient descent: what a network's last layer does by itself."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dsal.errors import InputError
from dsal.methods.arrays import Array, Labels

BATCH = 128
MOMENTUM = 0.9


def check_training(learning_rate: float, epochs: int, weight_decay: float) -> None:
    """Refuse what :func:`train_linear` cannot use."""
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
    """Weights (c, d + 1) with the bias in the last column, after ``epochs`` with a cosine schedule.

    Args:
        X: samples (n, d).
        y: their classes (n,), below c.
        start: weights to begin with (c, d + 1).
        epochs: passes over the samples.
        learning_rate: at the start.
        weight_decay: of weights and bias.
        random: the order of samples.
    """
    import torch
    from torch.nn.functional import cross_entropy

    rows = torch.from_numpy(np.hstack([X, np.ones((len(X), 1))]).astype(np.float32))
    labels = torch.from_numpy(y)
    weights = torch.tensor(start, dtype=torch.float32, requires_grad=True)
    optimiser = torch.optim.SGD([weights], lr=learning_rate, momentum=MOMENTUM, weight_decay=weight_decay)
    batches = -(-len(X) // BATCH)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, T_max=epochs * batches)
    for _ in range(epochs):
        for batch in torch.from_numpy(random.permutation(len(X))).split(BATCH):
            optimiser.zero_grad()
            cross_entropy(rows[batch] @ weights.T, labels[batch]).backward()
            optimiser.step()
            schedule.step()
    trained: NDArray[np.float32] = weights.detach().numpy()
    return trained


def linear_scores(X: Array, weights: NDArray[np.float32]) -> Array:
    """X (n, d) through weights (c, d + 1): (n, c)."""
    return X @ weights[:, :-1].T.astype(np.float64) + weights[:, -1]
