"""Predictions of a learned classifier: logits, labels, probabilities, and a torch module."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import softmax
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from dsal.analytic.combine import combined
from dsal.analytic.head import AnalyticHead
from dsal.analytic.learner import Learner
from dsal.analytic.leave_one_out import leave_one_out
from dsal.analytic.streams import check_compensation
from dsal.classifier.calibration import MOST_ROWS, Calibration
from dsal.classifier.inputs import Survey, read_features, read_rows
from dsal.classifier.labels import columns_of, kind_of, label_array
from dsal.errors import InputError

Array: TypeAlias = NDArray[Any]


class Inference:
    """The methods of :class:`~dsal.classifier.DSALClassifier` that do not change the model.

    NumPy in, NumPy out; torch in, torch out, on the same device, if the labels are numbers.
    """

    compensation: float | str | None
    n_features_in_: int
    _learner: Learner
    _classes: Array
    _calibration: Calibration

    def logits(self, X: Any, dtype: Any = "float64") -> Any:
        """Return X_M W_M + C X_C W_C, eq. (19): (n x classes), for any number of classes.

        Args:
            X: features (n x d_in).
            dtype: ``"float64"``, or ``"float32"`` for twice the speed and six digits.
        """
        return _like(X, self._logits(X, dtype))

    def decision_function(self, X: Any) -> Any:
        """Return scores in scikit-learn's shape: the logits, or for two classes their difference (n,)."""
        logits = self._logits(X)
        return _like(X, logits[:, 1] - logits[:, 0] if logits.shape[1] == 2 else logits)

    def predict(self, X: Any) -> Any:
        """Return the label of the largest logit for every row (n,)."""
        best = self._fitted().predict(read_features(self, X), self.compensation_)
        return _like(X, self._classes[best])

    def predict_proba(self, X: Any) -> Any:
        """Return softmax(logits / T), (n x classes), with T fitted as in ``classifier/calibration.py``.

        T is one number for all classes, fitted while learning to leave-one-out logits, with the compensation in use
        then. It calibrates the average confidence; it guarantees nothing for a single class, or for rows of unknown
        classes.
        """
        logits = self._logits(X)
        return _like(X, softmax(logits / self._calibration.temperature, axis=1))

    def top_k(self, X: Any, k: int = 5) -> tuple[Any, Any]:
        """Return the k most likely labels of every row, best first, and their logits: both (n x k)."""
        logits = self._logits(X)
        if not 1 <= k <= logits.shape[1]:
            raise InputError(f"k must be between 1 and the number of classes, {logits.shape[1]}; not {k}")
        order = np.argsort(-logits, axis=1, kind="stable")[:, :k]
        return _like(X, self._classes[order]), _like(X, np.take_along_axis(logits, order, axis=1))

    def to_torch(self, dtype: torch.dtype = torch.float32) -> AnalyticHead:
        """Return an independent ``torch.nn.Module``, features to logits; its attribute ``classes`` has the labels."""
        return self._fitted().head(self.compensation_, classes=self._classes.tolist()).copied(dtype)

    def loo_logits(self, X: Any, y: Any = None) -> Array:
        """Return the logits (n x classes) of rows of the last phase, each as if that row had not been learned.

        This is validation without validation data. It is exact in the main stream; in the compensation stream the
        residues of all other rows are held fixed. Costs 4 n d_B^2 flops.

        Args:
            X: features (n x d_in) of rows of the last phase, ideally all of them.
            y: their labels (n,).
        """
        learner, survey, ratio = self._fitted(), self._survey(X, y, None), self.compensation_
        self._known_columns(survey.labels)
        phase = survey.phase(self._classes, learner.backend.device)
        logits = []
        for block in phase.read(learner.block_rows):
            main, *rest = leave_one_out(
                learner, block, phase.present, first=learner.phases == 1, compensated=ratio != 0
            )
            logits.append(combined(main, rest[0], ratio) if rest else main)
        return torch.cat(logits).numpy()

    def loo_score(self, X: Any, y: Any) -> float:
        """Return the leave-one-out accuracy on rows of the last phase: see :meth:`loo_logits`."""
        return float((self.classes_[self.loo_logits(X, y).argmax(1)] == label_array(y)).mean())

    def condition(self) -> tuple[float, float | None]:
        """Return estimated condition numbers of G + gamma I in the main and (if there is one) the compensation stream.

        The relative error of the weights is about 1e-16 times that. Beyond 1e12, raise ``gamma`` or standardise the
        features.
        """
        main, *comps = (ridge.condition() for ridge in self._fitted().ridges)
        return main, comps[0] if comps else None

    @property
    def classes_(self) -> Array:
        """Labels in order of arrival; those that arrived in one call are sorted."""
        check_is_fitted(self)
        return self._classes

    @property
    def n_phases_(self) -> int:
        """Phases learned."""
        return self._fitted().phases

    @property
    def learns_on(self) -> bool:
        """Whether the model can learn, merge and forget; False if it was saved with ``learning=False``."""
        return self._fitted().learns_on

    @property
    def projection_(self) -> Array:
        """The projection, or the kernel's centres (d_in x d_B)."""
        return self._fitted().built().projection.cpu().numpy()

    @property
    def coef_main_(self) -> Array:
        """W_M (d_B x classes)."""
        return self._fitted().weights[0].cpu().numpy()

    @property
    def coef_comp_(self) -> Array | None:
        """W_C (d_B x classes), or None if the compensation stream was not learned."""
        weights = self._fitted().weights
        return weights[1].cpu().numpy() if len(weights) > 1 else None

    @property
    def compensation_(self) -> float:
        """C in use: ``compensation``, or the current choice if that is ``"auto"``."""
        return self._fitted().strength(check_compensation(self.compensation))

    @property
    def gamma_(self) -> float:
        """Ridge penalty of the main stream: ``gamma``, or the choice made in the first phase."""
        return self._fitted().gammas[0]

    @property
    def gamma_comp_(self) -> float:
        """Ridge penalty of the compensation stream: ``gamma_comp``, or the choice made in the first phase."""
        return self._fitted().gammas[-1]

    def __sklearn_is_fitted__(self) -> bool:
        """Return whether the model is fitted, for ``check_is_fitted``."""
        return hasattr(self, "_learner")

    def _fitted(self) -> Learner:
        """Return the learner; raise scikit-learn's error if nothing has been learned."""
        check_is_fitted(self)
        return self._learner

    def _logits(self, X: Any, dtype: Any = "float64") -> Array:
        learner, precision = self._fitted(), _precision(dtype)
        return learner.logits(read_features(self, X), self.compensation_, precision)

    def _survey(self, X: Any, y: Any, sample_weight: Any) -> Survey:
        """Read and check rows for a model that has learned before."""
        batches = read_rows(self, X, y, sample_weight, reset=False)
        kind, seed = kind_of(self.classes_), self._learner.seed
        return Survey.of(batches, features=self.n_features_in_, kind=kind, sample_size=MOST_ROWS, seed=seed)

    def _known_columns(self, labels: NDArray[Any]) -> NDArray[np.int64]:
        columns = columns_of(labels, self._classes)
        if (columns < 0).any():
            raise InputError(f"these classes were never learned: {labels[columns < 0].tolist()}")
        return columns


def _precision(dtype: Any) -> torch.dtype:
    name = str(dtype).removeprefix("torch.") if isinstance(dtype, torch.dtype) else np.dtype(dtype).name
    if name not in ("float32", "float64"):
        raise InputError(f"dtype must be float64 or float32, not {name}")
    return torch.float32 if name == "float32" else torch.float64


def _like(X: Any, answer: Array) -> Any:
    """Return the answer as a tensor if X is one and the answer is numeric."""
    if isinstance(X, Tensor) and answer.dtype.kind in "biuf":
        return torch.from_numpy(answer).to(X.device)
    return answer
