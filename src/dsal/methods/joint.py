"""Upper bounds: classifiers that keep the features of all phases and train on all of them again in every phase."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from dsal.errors import InputError
from dsal.methods.analytic import Streams
from dsal.methods.arrays import Array, ArrayMethod, nothing
from dsal.methods.contract import Samples


class _Joint(ArrayMethod):
    """Keeps every sample; nothing else has to be kept."""

    learned = ("samples_", "labels_")
    keeps_samples = True
    takes_returning_classes = True

    def __init__(self) -> None:
        self.samples_: Samples = nothing(dtype=np.float32)
        self.labels_: NDArray[np.int64] = nothing(0, dtype=np.int64)
        self._fitted = False

    @property
    def classes_seen(self) -> int:
        return int(self.labels_.max(initial=-1)) + 1

    def _learn(self, X: Samples, y: NDArray[np.int64], classes: Sequence[int]) -> None:
        if not np.isin(classes, y).all():
            raise InputError("a class of the phase has no samples")
        samples = np.concatenate([self.samples_.reshape(-1, X.shape[1]), X])
        self.samples_, self.labels_ = samples, np.concatenate([self.labels_, y])
        self._fit()
        self._fitted = True

    def _scores(self, X: Array) -> Array:
        if not self._fitted:  # as after loading
            self._fit()
            self._fitted = True
        return self._predict(X)

    @abstractmethod
    def _fit(self) -> None:
        """Train on all samples kept."""

    @abstractmethod
    def _predict(self, X: Array) -> Array:
        """Scores (n, classes_seen) of features (n, d)."""


class JointRidge(_Joint):
    """Ridge regression on ACIL's expansion, solved anew from all samples: what ACIL must equal.

    Args:
        expansion_size: d_B.
        gamma: ridge penalty.
        seed: of the expansion.
    """

    seed_varies = "the random expansion"
    trials = tuple({"gamma": value} for value in (0.1, 0.01, 1.0, 10.0, 100.0, 1000.0))

    def __init__(self, *, expansion_size: int = 4096, gamma: float = 0.1, seed: int = 0) -> None:
        super().__init__()
        self.expansion_size, self.gamma, self.seed = expansion_size, gamma, seed
        self._streams = self._fresh()

    def _fit(self) -> None:
        self._streams = self._fresh()
        self._streams.learn(self.samples_, self.labels_, range(self.classes_seen))

    def _predict(self, X: Array) -> Array:
        return self._streams.scores(X)

    def _fresh(self) -> Streams:
        return Streams(
            expansion="random",
            expansion_size=self.expansion_size,
            gamma=self.gamma,
            gamma_comp=self.gamma,
            compensation=0.0,
            activation="identity",
            seed=self.seed,
        )


class JointLogistic(_Joint):
    """Multinomial logistic regression on the features (scikit-learn's), fitted anew to all samples.

    Args:
        penalty: C of scikit-learn; larger fits closer.
    """

    trials = tuple({"penalty": value} for value in (1.0, 0.001, 0.01, 0.1, 10.0, 100.0))

    def __init__(self, *, penalty: float = 1.0) -> None:
        if penalty <= 0.0:
            raise InputError(f"penalty must be above 0, got {penalty}")
        super().__init__()
        self.penalty = penalty
        self._weights, self._bias = nothing(), nothing(0)

    def _fit(self) -> None:
        from sklearn.linear_model import LogisticRegression

        if self.classes_seen == 1:
            self._weights, self._bias = np.zeros((1, self.samples_.shape[1])), np.zeros(1)
            return
        model = LogisticRegression(C=self.penalty, max_iter=1000)
        model.fit(self.samples_.astype(np.float64), self.labels_)
        two = self.classes_seen == 2  # scikit-learn then fits one row for the second class against the first
        self._weights = np.concatenate([-model.coef_, model.coef_]) if two else model.coef_
        self._bias = np.concatenate([-model.intercept_, model.intercept_]) if two else model.intercept_

    def _predict(self, X: Array) -> Array:
        scores: Array = X @ self._weights.T + self._bias
        return scores
