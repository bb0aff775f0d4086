"""What a learned classifier answers: logits, labels, probabilities, a module for torch."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import softmax
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from dsal.classifier.calibration import Calibration
from dsal.classifier.inputs import read_features
from dsal.errors import InputError
from dsal.head import AnalyticHead
from dsal.learner import Learner
from dsal.validation import check_compensation

Array: TypeAlias = NDArray[Any]


class Inference:
    """The methods of :class:`~dsal.classifier.DSALClassifier` that change nothing.

    NumPy in, NumPy out; torch in, torch out, on the same device, where the labels are numbers.
    """

    compensation: float | str | None
    _learner: Learner
    _classes: Array
    _calibration: Calibration

    def logits(self, X: Any, dtype: Any = "float64") -> Any:
        """X_M W_M + C X_C W_C, eq. (19): (n x classes), whatever the number of classes.

        Args:
            X: features (n x d_in).
            dtype: ``"float64"``, or ``"float32"`` for twice the speed and six digits.
        """
        return _like(X, self._logits(X, dtype))

    def decision_function(self, X: Any) -> Any:
        """Scores in scikit-learn's shape: the logits, or for two classes their difference (n,)."""
        logits = self._logits(X)
        return _like(X, logits[:, 1] - logits[:, 0] if logits.shape[1] == 2 else logits)

    def predict(self, X: Any) -> Any:
        """The label of the largest logit, for every row (n,)."""
        check_is_fitted(self)
        best = self._learner.predict(read_features(self, X), self.compensation_)
        return _like(X, self._classes[best])

    def predict_proba(self, X: Any) -> Any:
        """softmax(logits / T), (n x classes), with T fitted to leave-one-out logits: see ``classifier/calibration.py``.

        T is one number for all classes, fitted while learning, with the compensation in force then. It makes the
        average confidence honest; it is no promise for a single class, nor for rows of classes never learned.
        """
        logits = self._logits(X)
        return _like(X, softmax(logits / self._calibration.temperature, axis=1))

    def top_k(self, X: Any, k: int = 5) -> tuple[Any, Any]:
        """The k most likely labels of every row, best first, and their logits: both (n x k)."""
        logits = self._logits(X)
        if not 1 <= k <= logits.shape[1]:
            raise InputError(f"k must be between 1 and the number of classes, {logits.shape[1]}; not {k}")
        order = np.argsort(-logits, axis=1, kind="stable")[:, :k]
        return _like(X, self._classes[order]), _like(X, np.take_along_axis(logits, order, axis=1))

    def to_torch(self, dtype: torch.dtype = torch.float32) -> AnalyticHead:
        """A ``torch.nn.Module`` of its own, features to logits, with the labels in its attribute ``classes``."""
        check_is_fitted(self)
        return self._learner.head(self.compensation_, classes=self._classes.tolist()).copied(dtype)

    @property
    def projection_(self) -> Array:
        """The projection, or the kernel's centres (d_in x d_B)."""
        check_is_fitted(self)
        return self._learner.built().projection.cpu().numpy()

    @property
    def coef_main_(self) -> Array:
        """W_M (d_B x classes)."""
        check_is_fitted(self)
        return self._learner.weights[0].cpu().numpy()

    @property
    def coef_comp_(self) -> Array | None:
        """W_C (d_B x classes), or None if the compensation stream was not learned."""
        check_is_fitted(self)
        weights = self._learner.weights
        return weights[1].cpu().numpy() if len(weights) > 1 else None

    @property
    def compensation_(self) -> float:
        """C in force: ``compensation``, or what the phases learned so far say where that is ``"auto"``."""
        check_is_fitted(self)
        return self._learner.strength(check_compensation(self.compensation))

    @property
    def gamma_(self) -> float:
        """Ridge of the main stream: ``gamma``, or what was chosen in the first phase."""
        check_is_fitted(self)
        return self._learner.gammas[0]

    @property
    def gamma_comp_(self) -> float:
        """Ridge of the compensation stream: ``gamma_comp``, or what was chosen in the first phase."""
        check_is_fitted(self)
        return self._learner.gammas[-1]

    def _logits(self, X: Any, dtype: Any = "float64") -> Array:
        check_is_fitted(self)
        x, precision = read_features(self, X), _precision(dtype)
        return self._learner.logits(x, self.compensation_, precision)


def _precision(dtype: Any) -> torch.dtype:
    name = str(dtype).removeprefix("torch.") if isinstance(dtype, torch.dtype) else np.dtype(dtype).name
    if name not in ("float32", "float64"):
        raise InputError(f"dtype must be float64 or float32, not {name}")
    return torch.float32 if name == "float32" else torch.float64


def _like(X: Any, answer: Array) -> Any:
    """The answer as a tensor if X is one and the answer is numeric."""
    if isinstance(X, Tensor) and answer.dtype.kind in "biuf":
        return torch.from_numpy(answer).to(X.device)
    return answer
