"""``DSALClassifier``: dual-stream analytic learning as a scikit-learn estimator."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from copy import deepcopy
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import softmax
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from dsal.analytic.activations import Activation, resolve
from dsal.analytic.combine import combined
from dsal.analytic.head import AnalyticHead
from dsal.analytic.learner import Learner
from dsal.analytic.leave_one_out import leave_one_out, output_moments, review
from dsal.analytic.ridge_state import rollback
from dsal.analytic.streams import Compensation, check_compensation, check_gamma
from dsal.analytic.tuning import GAMMA_ROWS
from dsal.base.options import COMPENSATION, EXPANSION_SIZE, GAMMA
from dsal.classifier import classifier_files
from dsal.classifier.calibration import MOST_ROWS, Calibration, as_new, rows_wanted
from dsal.classifier.inputs import Survey, check_features, columns_of, kind_of, label_array, read_rows, seed_from
from dsal.distributed import ALONE, Team
from dsal.errors import InputError
from dsal.files.atomic import StrPath
from dsal.files.model_schema import CLASSIFIER
from dsal.files.tensors import load_tensors, save_tensors
from dsal.linalg.backend import backend_for

Array: TypeAlias = NDArray[Any]


class DSALClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """Classifier that learns new classes in closed form, forgets none and keeps no data.

    One call of :meth:`partial_fit` is one phase: it may contain new classes, more rows of known ones, or both. The main
    stream is exactly the ridge regression on all rows ever seen. The compensation stream depends on how rows are
    grouped into phases: calling :meth:`partial_fit` per mini-batch is legal and keeps the main stream exact, but is not
    the paper's algorithm. If a call raises, the model is unchanged.

    Args:
        expansion_size: d_B, width of the expansion. Memory is 16 d_B^2 bytes; time per row grows with d_B^2.
        gamma: ridge penalty of the main stream; ``"auto"`` chooses it in the first phase by leave-one-out predictions,
            which about doubles the time of that phase.
        gamma_comp: ridge penalty of the compensation stream, by default that of the main stream; ``"auto"`` chooses it
            in the same way, by the predictions of both streams: see docs/tuning.md.
        compensation: C, weight of the compensation stream; may be changed at any time. 0 gives the predictions of
            ACIL; None does not learn the compensation stream at all, at half the memory and time; ``"auto"`` updates it
            in every phase from leave-one-out errors.
        activation: activation of the compensation stream: a name, or a function of tensors.
        main_activation: activation of the main stream.
        expansion: ``"random"`` projection or ``"gaussian"`` kernel.
        cleanse: whether to drop residues of classes that are not in the phase (the paper's PLC).
        random_state: seed of the expansion.
        device: where to compute: ``"auto"``, ``"cpu"``, ``"cuda"`` ...

    Attributes:
        classes_: labels in order of arrival; those that arrive in one call are sorted.
        n_features_in_: width d_in of the features.
        n_phases_: phases learned.
        gamma_, gamma_comp_, compensation_: the penalties and C in use, given or chosen.
        projection_: the projection, or the kernel's centres (d_in x d_B).
        coef_main_: W_M (d_B x classes).
        coef_comp_: W_C (d_B x classes), or None.

    >>> from sklearn.datasets import load_iris
    >>> X, y = load_iris(return_X_y=True)
    >>> model = DSALClassifier(expansion_size=64)
    >>> model = model.partial_fit(X[:100], y[:100]).partial_fit(X[100:], y[100:])
    >>> model.classes_.tolist(), model.n_phases_, model.score(X, y) > 0.95
    ([0, 1, 2], 2, True)
    """

    n_features_in_: int
    _learner: Learner
    _classes: Array
    _class_weight: NDArray[np.float64]  # weight of the rows of each class
    _calibration: Calibration
    _fixed: dict[str, Any]  # parameters as they were in the first phase

    team: Team = ALONE  # the processes that learn together; not a parameter of the model: set it before learning

    def __init__(
        self,
        expansion_size: int = EXPANSION_SIZE,
        gamma: float | str = GAMMA,
        gamma_comp: float | str | None = None,
        compensation: float | str | None = COMPENSATION,
        activation: str | Activation = "tanh",
        main_activation: str | Activation = "relu",
        expansion: str = "random",
        cleanse: bool = True,
        random_state: Any = 0,
        device: str | torch.device = "auto",
    ) -> None:
        self.expansion_size = expansion_size
        self.gamma = gamma
        self.gamma_comp = gamma_comp
        self.compensation = compensation
        self.activation = activation
        self.main_activation = main_activation
        self.expansion = expansion
        self.cleanse = cleanse
        self.random_state = random_state
        self.device = device

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> DSALClassifier:
        """Learn from scratch, in one phase; arguments as in :meth:`partial_fit`."""
        with self.rollback():
            for name in ("_learner", "n_features_in_", "feature_names_in_"):
                self.__dict__.pop(name, None)
            self._learn(X, y, None, sample_weight)
        return self

    def partial_fit(self, X: Any, y: Any = None, classes: Any = None, sample_weight: Any = None) -> DSALClassifier:
        """Learn one phase.

        Args:
            X: features (n x d_in), array or tensor; or, for phases larger than memory, an iterable of batches
                ``(x, y)`` or ``(x, y, weight)`` that can be read several times, such as a ``DataLoader``.
            y: labels (n,): numbers or strings, of one type. Not given with an iterable.
            classes: labels to add to those seen before; ``y`` must not contain any others. By default those of ``y``.
            sample_weight: weights (n,), not negative. A row of weight 2 counts as two rows.
        """
        with self.rollback():
            self._learn(X, y, classes, sample_weight)
        return self

    def merge(self, other: DSALClassifier) -> DSALClassifier:
        """Add what ``other`` has learned, without its data; ``other`` is unchanged.

        The main stream becomes exactly what it would be if all rows had been learned here. In the compensation stream
        each side took its residues from its own weights, so it differs from that of pooled data; ``compensation=0``
        predicts with the main stream alone.
        """
        check_is_fitted(self)
        check_is_fitted(other)
        self._learner.check_mergeable(other._learner)
        known, ours = len(self._classes), self._extended(other._classes)
        columns = columns_of(other._classes, ours)
        with self.rollback():
            self._learner.merge(other._learner, self._tensor(columns), len(ours))
            weight = np.pad(self._class_weight, (0, len(ours) - known))
            weight[columns] += other._class_weight
            self._classes, self._class_weight = ours, weight
            self._calibration = self._calibration.merged(other._calibration)
        return self

    def forget(
        self, X: Any, y: Any = None, sample_weight: Any = None, keep_compensation: bool = False
    ) -> DSALClassifier:
        """Forget rows: the model becomes one that has never seen them.

        The main stream is then that of all other rows, to within rounding. The compensation stream cannot forget, so it
        is removed: the model predicts with the main stream alone from now on, which costs some accuracy on the classes
        of later phases. The calibration is estimated again, from sums. Classes without rows are removed. What remains
        of the rows is a ``gamma`` that was chosen by ``"auto"``. The rows must be rows that were learned: with others
        the model becomes wrong, and only the worst cases can be detected.

        Args:
            X: features, as in :meth:`partial_fit`.
            y: their labels (n,).
            sample_weight: their weights (n,).
            keep_compensation: whether to keep the compensation stream and the calibration, *with* their traces of the
                rows.
        """
        check_is_fitted(self)
        self._learner.check_learns()
        survey = self._survey(X, y, sample_weight)
        with self._without(survey.labels, survey.weights, keep_compensation):
            self._learner.unlearn(survey.phase(self._classes, self._learner.backend.device))
        return self

    def unmerge(self, other: DSALClassifier, keep_compensation: bool = False) -> DSALClassifier:
        """Subtract what ``other`` has learned, without its data: the inverse of :meth:`merge`.

        The main stream becomes exactly what it would be without the rows of ``other``, whether it was merged or its
        rows were learned here. The compensation stream is removed, as in :meth:`forget`, unless ``keep_compensation``:
        it is exact only if ``other`` was merged as it is and nothing was learned since. Classes without rows are
        removed.
        """
        check_is_fitted(self)
        check_is_fitted(other)
        other._learner.check_learns()
        with self._without(other._classes, other._class_weight, keep_compensation) as columns:
            self._learner.unmerge(other._learner, self._tensor(columns))
        return self

    def drop_compensation(self) -> DSALClassifier:
        """Remove the compensation stream for good, and half of the memory: the model predicts like ACIL."""
        check_is_fitted(self)
        with self.rollback():
            self._learner.drop_compensation()
            if self.compensation is not None:
                self.compensation = 0.0
        return self

    def __add__(self, other: DSALClassifier) -> DSALClassifier:
        """Return a new model that has learned what both have: a copy with ``other`` merged."""
        return deepcopy(self).merge(other) if isinstance(other, DSALClassifier) else NotImplemented

    def __iadd__(self, other: DSALClassifier) -> DSALClassifier:
        return self.merge(other) if isinstance(other, DSALClassifier) else NotImplemented

    def __sub__(self, other: DSALClassifier) -> DSALClassifier:
        """Return a new model without what ``other`` has learned: see :meth:`unmerge`."""
        return deepcopy(self).unmerge(other) if isinstance(other, DSALClassifier) else NotImplemented

    def __isub__(self, other: DSALClassifier) -> DSALClassifier:
        return self.unmerge(other) if isinstance(other, DSALClassifier) else NotImplemented

    def rename_class(self, old: Any, new: Any) -> DSALClassifier:
        """Rename a class; what was learned about it is unchanged.

        Raises:
            InputError: there is no class ``old``, or ``new`` is the label of another one.
        """
        check_is_fitted(self)
        before, after = label_array([old]), label_array([new])
        column = self._known_columns(before)[0]
        if kind_of(after) != kind_of(self._classes):
            raise InputError(f"labels mix types ({kind_of(self._classes)}, {kind_of(after)}): use one type of label")
        if columns_of(after, self._classes)[0] not in (-1, column):
            raise InputError(f"there is already a class {new!r}: two classes cannot have the same label")
        self._classes = label_array([new if i == column else label for i, label in enumerate(self._classes.tolist())])
        return self

    def drop_class(self, label: Any) -> DSALClassifier:
        """Never predict a class again; its rows still count as negative examples of the others.

        Only :meth:`forget`, which needs those rows, removes them from the main stream.
        """
        check_is_fitted(self)
        kept = np.arange(len(self._classes)) != self._known_columns(label_array([label]))[0]
        if not kept.any():
            raise InputError(f"{label!r} is the only class: a model needs at least one")
        with self.rollback():
            self._select(kept)
        return self

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
        best = self._fitted().predict(check_features(self, X), self.compensation_)
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

    def save(self, path: StrPath, learning: bool = True) -> None:
        """Write the model to one safetensors file; an interrupted write leaves no file.

        Args:
            path: the file.
            learning: whether to include what further learning needs (8 d_B^2 bytes).
        """
        check_is_fitted(self)
        save_tensors(path, *classifier_files.pack(self, learning))

    @classmethod
    def load(cls, path: StrPath, device: str | torch.device = "auto") -> DSALClassifier:
        """Load a model that :meth:`save` wrote; it continues bit for bit."""
        model = cls()
        classifier_files.unpack(model, *load_tensors(path, CLASSIFIER), path, device)
        return model

    @contextmanager
    def rollback(self) -> Iterator[None]:
        """Restore the model, bit for bit, if the block raises; for steps that must succeed or fail together."""
        with rollback((), self), self._learner.rollback() if self.__sklearn_is_fitted__() else nullcontext():
            yield

    def _learn(self, X: Any, y: Any, classes: Any, sample_weight: Any) -> None:
        compensation, settings = check_compensation(self.compensation), self._settings()
        if self.__sklearn_is_fitted__():
            changed = [name for name in settings if settings[name] != self._fixed[name]]
            if changed:
                raise InputError(f"{', '.join(changed)} cannot change once learning has begun: use fit to start over")
            self._learner.check_compensation(compensation)
            survey = self._survey(X, y, sample_weight)
        else:
            learner = self._fresh(seed_from(self.random_state), compensated=compensation is not None)
            batches = read_rows(self, X, y, sample_weight, reset=True)
            rows = max(GAMMA_ROWS, learner.rows_wanted)
            survey = Survey.of(batches, features=None, kind=None, sample_size=rows, seed=learner.seed)
            self._learner, self._fixed, self.n_features_in_ = learner, settings, survey.features
            self._classes, self._class_weight, self._calibration = survey.labels[:0], np.zeros(0), Calibration()
        known, ours = len(self._classes), self._extended(survey.labels if classes is None else label_array(classes))
        columns = columns_of(survey.labels, ours)
        if (columns < 0).any():
            raise InputError(f"y contains labels that are not among `classes`: {survey.labels[columns < 0].tolist()}")
        learner = self._learner
        phase, total = survey.phase(ours, learner.backend.device), float(survey.weights.sum())
        learner.learn(phase)
        sample = survey.rows_for(ours, rows_wanted(total), learner.backend.device)
        left_out = review(learner, sample, phase.present, total, 0.0 if compensation is None else compensation)
        self._classes, self._class_weight = ours, np.pad(self._class_weight, (0, len(ours) - known))
        self._class_weight[columns] += survey.weights
        weight = np.ones(len(left_out)) if sample.weight is None else sample.weight.cpu().numpy()
        own, removed = sample.columns.cpu().numpy(), sample.removable.cpu().numpy()
        logits = as_new(left_out.numpy(), own, self._class_weight[own], removed, weight)
        self._calibration = self._calibration.plus(logits, own, weight, total)

    def _fresh(self, seed: int, compensated: bool) -> Learner:
        """Check this model's parameters and return a new learner, with or without a compensation stream."""
        gamma_comp = None if self.gamma_comp is None else check_gamma("gamma_comp", self.gamma_comp)
        stream = Compensation(resolve(self.activation), bool(self.cleanse), gamma_comp)
        return Learner(
            expansion=self.expansion,
            size=self.expansion_size,
            seed=seed,
            gamma=check_gamma("gamma", self.gamma),
            main_activation=self.main_activation,
            compensations=(stream,) if compensated else (),
            backend=backend_for(self.device),
            team=self.team,
        )

    def _settings(self) -> dict[str, Any]:
        """Return the parameters that are fixed from the first phase on."""
        return {name: value for name, value in self.get_params(deep=False).items() if name != "compensation"}

    def _extended(self, labels: Array) -> Array:
        """Return the classes, followed by the new ones among ``labels``, sorted."""
        if kind_of(labels) != kind_of(self._classes):
            raise InputError(f"labels mix types ({kind_of(self._classes)}, {kind_of(labels)}): use one type of label")
        return np.concatenate([self._classes, np.unique(labels[columns_of(labels, self._classes) < 0])])

    @contextmanager
    def _without(
        self, labels: Array, weights: NDArray[np.float64], keep_compensation: bool
    ) -> Iterator[NDArray[np.int64]]:
        """Yield the columns of ``labels``; when the block has removed rows of these weights, remove empty classes."""
        with self.rollback():
            columns = self._known_columns(labels)
            weight, slack = self._class_weight.copy(), 1e-9 * self._class_weight
            weight[columns] -= weights
            if (weight < -slack).any():
                raise InputError(
                    f"more rows to forget than were learned, for the classes {self._classes[weight < -slack].tolist()}"
                )
            kept = (weight > slack) | (self._class_weight == 0)  # declared, but never seen: kept
            if not weight[kept].any():
                raise InputError("this would remove every row that was learned: create a new model instead")
            if not keep_compensation:
                self.drop_compensation()
            yield columns
            self._class_weight = weight
            self._select(kept)
            if not keep_compensation:
                self._calibration = self._estimated_calibration()

    def _estimated_calibration(self) -> Calibration:
        """Return the calibration of the main stream, estimated from its sums."""
        counts = torch.from_numpy(self._class_weight).to(self._learner.backend.device)
        moments = output_moments(self._learner.ridges[0], counts)
        if moments is None:
            return Calibration()
        means, covariance = (moment.cpu().numpy() for moment in moments)
        return Calibration.estimated(means, covariance, self._class_weight)

    def _select(self, kept: NDArray[np.bool_]) -> None:
        """Drop all classes but the marked ones."""
        self._learner.select(self._tensor(np.flatnonzero(kept)))
        self._classes, self._class_weight = self._classes[kept], self._class_weight[kept]

    def _tensor(self, columns: NDArray[np.int64]) -> Tensor:
        return torch.from_numpy(columns).to(self._learner.backend.device)

    def _fitted(self) -> Learner:
        """Return the learner; raise scikit-learn's error if nothing has been learned."""
        check_is_fitted(self)
        return self._learner

    def _logits(self, X: Any, dtype: Any = "float64") -> Array:
        learner, precision = self._fitted(), _precision(dtype)
        return learner.logits(check_features(self, X), self.compensation_, precision)

    def _survey(self, X: Any, y: Any, sample_weight: Any) -> Survey:
        """Read and check rows for a model that has learned before."""
        batches = read_rows(self, X, y, sample_weight, reset=False)
        kind, seed = kind_of(self.classes_), self._learner.seed
        return Survey.of(batches, features=self.n_features_in_, kind=kind, sample_size=MOST_ROWS, seed=seed)

    def _known_columns(self, labels: Array) -> NDArray[np.int64]:
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
