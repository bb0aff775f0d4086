"""Upper bounds: classifiers that keep the features of all phases and retrain on all of them in every phase."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from dsal.base.options import EXPANSION_SIZE, GAMMA
from dsal.errors import InputError
from dsal.files.schema import Array as Kept
from dsal.methods.closed_form.ds_al import ACIL
from dsal.methods.closed_form.kit.feature_method import MEANS, Array, ArrayMethod, Features, grown, keeps, nothing

SAMPLES = {"samples_": Kept("float32", ("samples", "features")), "labels_": Kept("int64", ("samples",), low=0)}


class _Joint(ArrayMethod):
    """A method that keeps every sample."""

    keeps_samples = True
    takes_returning_classes = True

    def __init__(self) -> None:
        self.samples_: Features = nothing(dtype=np.float32)
        self.labels_: NDArray[np.int64] = nothing(0, dtype=np.int64)

    @property
    def classes_seen(self) -> int:
        return int(self.labels_.max(initial=-1)) + 1

    def _learn(self, X: Features, y: NDArray[np.int64], classes: Sequence[int]) -> None:
        if not np.isin(classes, y).all():
            raise InputError("a class of the phase has no samples")
        samples = np.concatenate([self.samples_.reshape(-1, X.shape[1]), X])
        labels = np.concatenate([self.labels_, y])
        self._fit(samples, labels)
        self.samples_, self.labels_ = samples, labels

    def check_learned(self) -> None:
        if not np.isin(range(min(self.classes_seen, len(self.labels_) + 1)), self.labels_).all():
            raise InputError("expected labels of classes 0, 1, 2 ... with samples of each; some class has none")

    @abstractmethod
    def _fit(self, X: Features, y: NDArray[np.int64]) -> None:
        """Train on all samples so far: X (n, d) of classes y (n,)."""


class JointRidge(_Joint):
    """Ridge regression on ACIL's expansion, solved from scratch on all samples; ACIL must equal it.

    Args:
        expansion_size: d_B.
        gamma: ridge penalty.
        seed: seed of the expansion.
    """

    name = "joint-ridge"
    title = "Joint ridge"

    learned = keeps(**SAMPLES)
    seed_varies = "the random expansion"
    trials = tuple({"gamma": value} for value in (0.1, 0.01, 1.0, 10.0, 100.0, 1000.0))

    def __init__(self, *, expansion_size: int = EXPANSION_SIZE, gamma: float = GAMMA, seed: int = 0) -> None:
        super().__init__()
        self.expansion_size, self.gamma, self.seed = expansion_size, gamma, seed
        self._ridge = self._fresh()

    def _fit(self, X: Features, y: NDArray[np.int64]) -> None:
        ridge = self._fresh()
        ridge.team = self.team
        ridge._learn(X, y, range(int(y.max()) + 1))
        self._ridge = ridge

    def _scores(self, X: Array) -> Array:
        if not self._ridge.classes_seen:  # restored from a file, which holds only the samples
            self._fit(self.samples_, self.labels_)
        return self._ridge._scores(X)

    def _fresh(self) -> ACIL:
        return ACIL(expansion_size=self.expansion_size, gamma=self.gamma, seed=self.seed)


class JointLogistic(_Joint):
    """Multinomial logistic regression on the features (scikit-learn's), fitted to all samples.

    Args:
        penalty: scikit-learn's C; larger means less regularisation.
    """

    name = "joint-logistic"
    title = "Joint logistic"

    learned = keeps(**SAMPLES, weights_=MEANS, bias_=Kept("float64", ("classes",)))
    trials = tuple({"penalty": value} for value in (1.0, 0.001, 0.01, 0.1, 0.3, 10.0))

    def __init__(self, *, penalty: float = 1.0) -> None:
        if penalty <= 0.0:
            raise InputError(f"penalty must be above 0, got {penalty}")
        from sklearn.linear_model import LogisticRegression  # imported here to keep it out of the time of a phase

        super().__init__()
        self.penalty = penalty
        self._model = LogisticRegression(C=penalty, max_iter=1000, warm_start=True)
        self.weights_, self.bias_ = nothing(), nothing(0)

    def _fit(self, X: Features, y: NDArray[np.int64]) -> None:
        classes, width = int(y.max()) + 1, X.shape[1]
        weights, bias = grown(self.weights_, classes, width), grown(self.bias_, classes)
        if classes > 1:
            self._model.coef_ = None
            if classes > 2:  # warm start from the last phase: the same optimum, reached sooner
                self._model.coef_, self._model.intercept_ = weights, bias
            self._model.fit(X.astype(np.float64), y)
            weights, bias = self._model.coef_, self._model.intercept_
            if classes == 2:  # scikit-learn fits one row, the second class against the first
                weights, bias = np.concatenate([-weights, weights]), np.concatenate([-bias, bias])
        self.weights_, self.bias_ = weights, bias

    def _scores(self, X: Array) -> Array:
        scores: Array = X @ self.weights_.T + self.bias_
        return scores
