"""Exp3: a bandit that observes only the rewards of the arms it draws (Auer et al., 2002)."""

from __future__ import annotations

import math

import torch
from torch import Generator, Tensor


class Exp3:
    """Weights of arms, and the probabilities that follow from them.

    Args:
        arms: number of arms, n.
        exploration: eta, the fraction of draws that ignores the weights.
    """

    def __init__(self, arms: int, exploration: float) -> None:
        self.exploration = exploration
        self.weights = torch.ones(arms, dtype=torch.float64)

    @property
    def probabilities(self) -> Tensor:
        """Probabilities of the arms: (1 - eta) w / sum(w) + eta / n, (n,)."""
        uniform = self.exploration / len(self.weights)
        return (1 - self.exploration) * self.weights / self.weights.sum() + uniform

    @property
    def best(self) -> int:
        """The arm with the largest weight; the first one in a tie."""
        return int(self.weights.argmax())

    def draw(self, generator: Generator) -> int:
        """Draw an arm according to the probabilities."""
        return int(self.probabilities.multinomial(1, generator=generator))

    def reward(self, arm: int, value: float) -> None:
        """Multiply the weight of the drawn arm by exp(eta value / (p n)), for a value in [0, 1]."""
        expected = value / float(self.probabilities[arm])
        self.weights[arm] *= math.exp(self.exploration * expected / len(self.weights))
        self.weights /= self.weights.max()
