"""iVoro: Voronoi cells of class means, refined by a local head for each phase (Ma et al., ICLR 2023)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from dsal.errors import InputError
from dsal.files.schema import Array as Kept
from dsal.methods.closed_form.kit.feature_method import (
    COUNTS,
    MEANS,
    Array,
    ArrayMethod,
    Features,
    Labels,
    keeps,
    nothing,
)
from dsal.methods.closed_form.kit.geometry import (
    check_exponent,
    floor_of,
    raised,
    squared_distances,
    unit_rows,
    update_means,
)

ITERATIONS = 200


class _IVoro(ArrayMethod):
    """The base class of the three variants, which differ in how they transform features and whether phases nominate.

    N (``parametrised``): the mean of a class is over unit vectors of powers, f^p / |f^p|; without it, over features.
    D (``divided``): the linear head of each phase nominates one of its classes, and the nominee with the nearest mean
    wins; without it, the nearest of all means wins.
    """

    parametrised: ClassVar[bool]
    divided: ClassVar[bool]
    learned = keeps(
        floor_=Kept("float64", ("_features",), high=0),
        counts_=COUNTS,
        means_=MEANS,
        starts_=Kept("int64", ("phases",), low=0),
        heads_=Kept("float64", ("_classes", "_features")),
    )

    def __init__(self, power: float, penalty: float) -> None:
        check_exponent(power)
        if penalty <= 0.0:
            raise InputError(f"penalty must be above 0, got {penalty}")
        self.power, self.penalty = power, penalty
        self.floor_, self.counts_, self.means_ = nothing(0), nothing(0, dtype=np.int64), nothing()
        self.starts_: Labels = nothing(0, dtype=np.int64)  # first class of each phase
        self.heads_ = nothing()  # (c, d): w_c of each class, in the head of its phase

    def _learn(self, X: Features, y: NDArray[np.int64], classes: Sequence[int]) -> None:
        rows = np.asarray(X, dtype=np.float64)
        floor = floor_of(rows) if self.parametrised and not self.classes_seen else self.floor_
        counts, means = update_means(self._measured(rows, floor), y, classes, self.counts_, self.means_)
        if self.divided:
            head = voronoi_head(rows, y - classes[0], len(classes), self.penalty)
            self.heads_ = np.concatenate([self.heads_.reshape(-1, rows.shape[1]), head])
            self.starts_ = np.append(self.starts_, classes[0])
        self.floor_, self.counts_, self.means_ = floor, counts, means

    def check_learned(self) -> None:
        starts, shape = self.starts_.tolist(), self.means_.shape if self.divided else (0, 0)
        if starts != sorted(set(starts)) or (self.divided and starts[:1] != [0]) or self.heads_.shape != shape:
            raise InputError("the heads do not match consecutive phases")
        if len(self.floor_) != (self.means_.shape[1] if self.parametrised else 0):
            raise InputError("the length of the floor does not match the features")
        if starts and starts[-1] >= self.classes_seen:
            raise InputError(f"a phase starts with class {starts[-1]}, but there are {self.classes_seen} classes")

    def _measured(self, X: Array, floor: Array) -> Array:
        return unit_rows(raised(X, floor, self.power)) if self.parametrised else X

    def _scores(self, X: Array) -> Array:
        distances = squared_distances(self._measured(X, self.floor_), self.means_)
        if not self.divided:
            return -distances
        local = X @ self.heads_.T - 0.25 * (self.heads_**2).sum(axis=1)
        # Classes that were not nominated rank after all that were, also by distance.
        offset: Array = np.repeat(distances.max(axis=1, keepdims=True) + 1.0, self.classes_seen, axis=1)
        every_row = np.arange(len(X))
        for start, stop in zip(self.starts_, np.append(self.starts_[1:], self.classes_seen), strict=True):
            offset[every_row, start + local[:, start:stop].argmax(axis=1)] = 0.0
        return -distances - offset


class IVoroN(_IVoro):
    """iVoro-N: nearest mean of unit vectors of powers.

    Args:
        power: p; needs non-negative features: see :func:`~dsal.methods.closed_form.kit.geometry.floor_of` for
            standardised ones.
    """

    name = "ivoro-n"
    title = "iVoro-N"

    parametrised, divided = True, False
    takes_returning_classes = True
    trials = tuple({"power": value} for value in (0.6, 0.4, 0.5, 0.7, 0.85, 1.0))

    def __init__(self, *, power: float = 0.6) -> None:
        super().__init__(power, penalty=1.0)


class IVoroD(_IVoro):
    """iVoro-D: heads of the phases nominate, the nearest mean of features wins.

    Args:
        penalty: ridge penalty on the weights of a local head.
    """

    name = "ivoro-d"
    title = "iVoro-D"

    parametrised, divided = False, True
    trials = tuple({"penalty": value} for value in (1e-3, 1e-4, 3e-4, 3e-3, 1e-2, 1e-1))

    def __init__(self, *, penalty: float = 1e-3) -> None:
        super().__init__(1.0, penalty)


class IVoroND(_IVoro):
    """iVoro-ND: heads of the phases nominate, the nearest mean of unit vectors of powers wins.

    Args:
        power: p, as in iVoro-N; the local heads use the untransformed features.
        penalty: ridge penalty on the weights of a local head.
    """

    name = "ivoro-nd"
    title = "iVoro-ND"

    parametrised, divided = True, True
    trials = tuple(
        {"power": p, "penalty": value}
        for p, value in ((0.6, 1e-3), (0.6, 1e-2), (0.6, 3e-4), (0.6, 1e-4), (0.5, 1e-3), (0.5, 3e-4))
    )

    def __init__(self, *, power: float = 0.6, penalty: float = 1e-3) -> None:
        super().__init__(power, penalty)


def voronoi_head(X: Array, y: Labels, classes: int, penalty: float) -> Array:
    """Return weights w (classes, d) that minimise :func:`voronoi_loss` on rows X (n, d) of classes y (n,), by L-BFGS.

    The class means are the initial centres w_c / 2, for which the head is the nearest mean.
    """
    from scipy.optimize import minimize

    targets = np.eye(classes)[y]
    start: Array = 2.0 * (targets.T @ X) / targets.sum(axis=0)[:, None]
    if classes == 1:
        return start

    def loss(flat: Array) -> tuple[float, Array]:
        value, gradient = voronoi_loss(flat.reshape(start.shape), X, targets, penalty)
        return value, gradient.ravel()

    found = minimize(loss, start.ravel(), jac=True, method="L-BFGS-B", options={"maxiter": ITERATIONS})
    return np.asarray(found.x).reshape(start.shape)


def voronoi_loss(w: Array, X: Array, targets: Array, penalty: float) -> tuple[float, Array]:
    """Return mean cross-entropy + penalty / 2 * sum |w_c|^2 of a softmax head, and its gradient (classes, d).

    The logits are x.w_c - |w_c|^2 / 4, so the head is the Voronoi diagram of the points w_c / 2.

    Args:
        w: weights (classes, d).
        X: rows (n, d).
        targets: their classes, one-hot (n, classes).
        penalty: ridge penalty on the weights.
    """
    from scipy.special import log_softmax

    log_p = log_softmax(X @ w.T - 0.25 * (w**2).sum(axis=1), axis=1)
    excess = (np.exp(log_p) - targets) / len(X)  # the gradient w.r.t. the logits
    gradient: Array = excess.T @ X - 0.5 * excess.sum(axis=0)[:, None] * w + penalty * w
    return float(0.5 * penalty * (w**2).sum() - (targets * log_p).sum() / len(X)), gradient
