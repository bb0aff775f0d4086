"""FeTrIL: pseudo-features of old classes are new features translated to the old means (Petit et al., WACV 2023)."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from dsal.errors import InputError
from dsal.methods.closed_form.kit.feature_method import (
    COUNTS,
    LINEAR,
    MEANS,
    Array,
    ArrayMethod,
    Features,
    Labels,
    grown,
    keeps,
    nothing,
)
from dsal.methods.closed_form.kit.geometry import squared_distances, unit_rows, update_means
from dsal.methods.closed_form.sgd_head import LinearTraining, linear_scores


def translated(X: Array, y: Labels, classes: Sequence[int], means: Array) -> tuple[Array, Labels]:
    """Return the features of a phase, and pseudo-features of each older class, with their labels.

    The class n of the phase nearest to an older class p lends it all its samples: x - mean_n + mean_p.

    Args:
        X: samples of the phase (n, d).
        y: their classes (n,).
        classes: classes of the phase.
        means: means of all classes seen, including those of the phase (c, d).
    """
    rows, labels = [X], [y]
    donors = np.asarray(classes)
    for old in range(classes[0]):
        donor = donors[squared_distances(means[old : old + 1], means[donors])[0].argmin()]
        lent = X[y == donor]
        rows.append(lent - means[donor] + means[old])
        labels.append(np.full(len(lent), old))
    return np.concatenate(rows), np.concatenate(labels)


class _FeTrIL(ArrayMethod):
    """A linear classifier, retrained in each phase on unit vectors: real for new classes, translated for old ones."""

    learned = keeps(counts_=COUNTS, means_=MEANS, weights_=LINEAR)

    def __init__(self) -> None:
        self.counts_, self.means_ = nothing(0, dtype=np.int64), nothing()
        self.weights_: NDArray[np.float32] = nothing(dtype=np.float32)  # (c, d + 1)

    def _learn(self, X: Features, y: NDArray[np.int64], classes: Sequence[int]) -> None:
        rows = np.asarray(X, dtype=np.float64)
        counts, means = update_means(rows, y, classes, self.counts_, self.means_)
        samples, labels = translated(rows, y, classes, means)
        self.weights_ = self._fit(unit_rows(samples), labels, classes[-1] + 1)
        self.counts_, self.means_ = counts, means

    @abstractmethod
    def _fit(self, X: Array, y: Labels, classes: int) -> NDArray[np.float32]:
        """Return the weights (classes, d + 1) of a classifier of unit vectors (n, d)."""

    def _scores(self, X: Array) -> Array:
        return linear_scores(unit_rows(X), self.weights_)


class FeTrIL(_FeTrIL):
    """FeTrIL with linear support vector machines, one versus rest (scikit-learn's LinearSVC, in the primal).

    Args:
        penalty: C of the machines; larger means less regularisation.
    """

    name = "fetril"
    title = "FeTrIL"

    trials = tuple({"penalty": value} for value in (1.0, 0.01, 0.03, 0.1, 0.3, 3.0))

    def __init__(self, *, penalty: float = 1.0) -> None:
        if penalty <= 0.0:
            raise InputError(f"penalty must be above 0, got {penalty}")
        from sklearn.multiclass import OneVsRestClassifier  # imported here to keep it out of the time of a phase
        from sklearn.svm import LinearSVC

        super().__init__()
        self.penalty = penalty
        self._machines = OneVsRestClassifier(LinearSVC(C=penalty, tol=1e-4, dual=False), n_jobs=-1)

    def _fit(self, X: Array, y: Labels, classes: int) -> NDArray[np.float32]:
        from joblib import parallel_config  # type: ignore[import-untyped]

        if classes == 1:
            return np.zeros((1, X.shape[1] + 1), dtype=np.float32)
        with parallel_config("threading"):  # liblinear releases the GIL, so classes are trained in parallel
            machines = self._machines.fit(X, y).estimators_
        weights = np.array([np.append(machine.coef_, machine.intercept_) for machine in machines], dtype=np.float32)
        return np.concatenate([-weights, weights]) if classes == 2 else weights  # two classes share one machine


class FeTrILFC(_FeTrIL):
    """FeTrIL with a linear softmax head, which each phase continues to train.

    Args:
        learning_rate: learning rate at the start of a phase, with a cosine decay to 0.
        epochs: passes over the samples, including pseudo-features.
        weight_decay: L2 penalty of weights and bias.
        seed: seed of the order of samples.
    """

    name = "fetril-fc"
    title = "FeTrIL-fc"

    seed_varies = "the order of samples"
    trials = tuple(
        {"learning_rate": rate, "weight_decay": decay}
        for rate, decay in ((0.05, 5e-4), (0.2, 5e-5), (0.2, 5e-6), (0.5, 5e-6), (1.0, 5e-6), (0.5, 5e-7))
    )

    def __init__(
        self, *, learning_rate: float = 0.05, epochs: int = 50, weight_decay: float = 5e-4, seed: int = 0
    ) -> None:
        super().__init__()
        self._training = LinearTraining(learning_rate, epochs, weight_decay)
        self.learning_rate, self.epochs, self.weight_decay, self.seed = learning_rate, epochs, weight_decay, seed

    def _fit(self, X: Array, y: Labels, classes: int) -> NDArray[np.float32]:
        start = grown(self.weights_, classes, X.shape[1] + 1)
        return self._training.run(X, y, start, np.random.RandomState([self.seed, self.classes_seen]))
