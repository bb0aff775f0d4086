"""``DSALClassifier``: dual-stream analytic learning for those who have features and labels."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import check_is_fitted

from dsal.activations import Activation, resolve
from dsal.blas import backend_for
from dsal.classifier import files
from dsal.classifier.calibration import MOST_ROWS, Calibration, rows_wanted
from dsal.classifier.inference import Array, Inference
from dsal.classifier.inputs import Survey, read_rows
from dsal.classifier.labels import columns_of, kind_of, label_array
from dsal.classifier.seeds import seed_of
from dsal.combine import combined
from dsal.defaults import COMPENSATION, EXPANSION_SIZE, GAMMA
from dsal.distributed import current
from dsal.errors import InputError
from dsal.learner import Learner
from dsal.left_out import leave_one_out, review
from dsal.store import StrPath
from dsal.streams import Compensation
from dsal.tuning import GAMMA_ROWS
from dsal.validation import check_compensation, check_gamma


class DSALClassifier(Inference, ClassifierMixin, BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """Learns new classes in closed form, forgets none, keeps no data.

    One call of :meth:`partial_fit` is one phase: it may bring new classes, more rows of old ones, or both. The main
    stream is exactly the ridge regression on all rows ever seen. The compensation stream depends on what was called a
    phase: calling :meth:`partial_fit` per mini-batch is legal and keeps the main stream exact, but is not the paper's
    algorithm. If a call raises, the model is what it was before.

    Args:
        expansion_size: d_B, width of the expansion. Memory is 16 d_B^2 bytes; time per row grows with d_B^2.
        gamma: ridge of the main stream; ``"auto"`` chooses it in the first phase by answers for rows left out, at about
            twice the time of that phase, and keeps it.
        gamma_comp: ridge of the compensation stream; that of the main stream by default; ``"auto"`` chooses it in the
            same way, by the answers of both streams: see docs/tuning.md.
        compensation: C, weight of the compensation stream; may be changed at any time. 0 gives the answers of ACIL;
            None does not learn the compensation stream at all, at half the memory and time; ``"auto"`` follows the
            phases learned, by leave-one-out errors of their rows; those of the first phase until there are others.
        activation: activation of the compensation stream: a name, or a function of tensors.
        main_activation: activation of the main stream.
        expansion: ``"random"`` projection or ``"gaussian"`` kernel.
        cleanse: whether residues of classes that are not in the phase are left out (the paper's PLC).
        random_state: seed of the expansion.
        device: where to compute: ``"auto"``, ``"cpu"``, ``"cuda"`` ...

    Attributes:
        classes_: labels in order of arrival; those that arrive in one call are sorted.
        n_features_in_: width d_in of the features.
        n_phases_: phases learned.
        gamma_, gamma_comp_, compensation_: gammas and C in force, given or chosen.
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

    _class_weight: NDArray[np.float64]  # weight of the rows of each class
    _fixed: dict[str, Any]  # parameters as they were in the first phase

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
            classes: labels to make room for, besides those seen before; all of ``y`` must be among both. By default
                those of ``y``.
            sample_weight: weights (n,), not negative. A row of weight 2 counts as two rows.
        """
        with self.rollback():
            self._learn(X, y, classes, sample_weight)
        return self

    def merge(self, other: DSALClassifier) -> DSALClassifier:
        """Learn all that ``other`` has learned, without its data; ``other`` stays as it is.

        The main stream becomes exactly what it would be had all rows been learned here. In the compensation stream
        each side's residues were taken against its own weights, so it differs from that of pooled data;
        ``compensation=0`` answers by the main stream alone.
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
        """Unlearn rows: the main stream becomes exactly what it would be had it never seen them.

        The compensation stream cannot be undone and still carries them, so ``compensation`` is set to 0 unless
        ``keep_compensation``. Classes left without rows leave the model. The rows must be some that were learned;
        from others the model would come out wrong, and it can notice only the worst cases.
        """
        check_is_fitted(self)
        self._learner.check_learns()
        survey = self._survey(X, y, sample_weight)
        with self.rollback():
            columns = self._known_columns(survey.labels)
            weight = self._class_weight.copy()
            weight[columns] -= survey.weights
            slack = 1e-9 * self._class_weight
            if (weight < -slack).any():
                raise InputError(
                    f"more rows than were learned, of the classes {self._classes[weight < -slack].tolist()}"
                )
            kept = (weight > slack) | (self._class_weight == 0)  # declared, but never seen: stays
            if not weight[kept].any():
                raise InputError("nothing would be left of the model: make a new one instead")
            self._learner.unlearn(survey.phase(self._classes, self._learner.backend.device))
            self._class_weight = weight
            self._keep(kept)
            if not keep_compensation and self.compensation is not None:
                self.compensation = 0.0
        return self

    def rename_class(self, old: Any, new: Any) -> DSALClassifier:
        """Give a class another label; what was learned of it stays as it is.

        Raises:
            InputError: there is no class ``old``, or ``new`` is the label of another one.
        """
        check_is_fitted(self)
        before, after = label_array([old]), label_array([new])
        column = self._known_columns(before)[0]
        if kind_of(after) != kind_of(self._classes):
            raise InputError(f"labels mix types ({kind_of(self._classes)}, {kind_of(after)}): use one type of label")
        if columns_of(after, self._classes)[0] not in (-1, column):
            raise InputError(f"there is a class {new!r} already: two classes cannot have one label")
        self._classes = label_array([new if i == column else label for i, label in enumerate(self._classes.tolist())])
        return self

    def drop_class(self, label: Any) -> DSALClassifier:
        """Never answer a class again; its rows stay in the model as examples of none of the others.

        Only :meth:`forget`, which needs those rows, takes them out of the main stream exactly.
        """
        check_is_fitted(self)
        kept = np.arange(len(self._classes)) != self._known_columns(label_array([label]))[0]
        if not kept.any():
            raise InputError(f"{label!r} is the only class: a model needs one to answer")
        with self.rollback():
            self._keep(kept)
        return self

    def loo_logits(self, X: Any, y: Any = None) -> Array:
        """Logits (n x classes) of rows of the last phase, each as if that row had not been learned.

        A validation that needs no data of its own: exact in the main stream; in the compensation stream the residues
        of all other rows stay as they are. Costs 4 n d_B^2 flops.

        Args:
            X: features (n x d_in) of rows of the last phase, best of all of them.
            y: their labels (n,).
        """
        check_is_fitted(self)
        survey, learner, ratio = self._survey(X, y, None), self._learner, self.compensation_
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
        """Leave-one-out accuracy on rows of the last phase: see :meth:`loo_logits`."""
        return float((self.classes_[self.loo_logits(X, y).argmax(1)] == label_array(y)).mean())

    def condition(self) -> tuple[float, float | None]:
        """Estimated condition numbers of G + gamma I in the main and (if there is one) the compensation stream.

        Weights are good to about 1e-16 times that, relatively. Beyond 1e12, raise ``gamma`` or standardise features.
        """
        check_is_fitted(self)
        main, *comps = (ridge.condition() for ridge in self._learner.ridges)
        return main, comps[0] if comps else None

    def save(self, path: StrPath, learning: bool = True) -> None:
        """Write the model to one safetensors file, whole or not at all.

        Args:
            path: the file.
            learning: whether to add what learning on needs (8 d_B^2 bytes) to what predicting needs.
        """
        check_is_fitted(self)
        files.save(self, path, learning)

    @classmethod
    def load(cls, path: StrPath, device: str | torch.device = "auto") -> DSALClassifier:
        """The model that :meth:`save` wrote; it goes on as if it had never stopped, bit for bit."""
        model = cls()
        files.load(model, path, device)
        return model

    @property
    def classes_(self) -> Array:
        """Labels in order of arrival; those that arrived in one call are sorted."""
        check_is_fitted(self)
        return self._classes

    @property
    def n_phases_(self) -> int:
        """Phases learned."""
        check_is_fitted(self)
        return self._learner.phases

    @property
    def learns_on(self) -> bool:
        """Whether the model can learn, merge and forget, or was saved without what that needs."""
        check_is_fitted(self)
        return self._learner.learns_on

    def __sklearn_is_fitted__(self) -> bool:
        """What ``check_is_fitted`` asks."""
        return hasattr(self, "_learner")

    @contextmanager
    def rollback(self) -> Iterator[None]:
        """If the block raises, the model is what it was before, bit for bit: for steps that belong together."""
        before = dict(self.__dict__)
        try:
            with self._learner.guard() if self.__sklearn_is_fitted__() else nullcontext():
                yield
        except BaseException:
            self.__dict__.clear()
            self.__dict__.update(before)
            raise

    def _learn(self, X: Any, y: Any, classes: Any, sample_weight: Any) -> None:
        compensation, settings = check_compensation(self.compensation), self._settings()
        if self.__sklearn_is_fitted__():
            changed = [name for name in settings if settings[name] != self._fixed[name]]
            if changed:
                raise InputError(f"{', '.join(changed)} cannot change once learning has begun: use fit to begin anew")
            survey = self._survey(X, y, sample_weight)
        else:
            learner = self._fresh(seed_of(self.random_state), compensated=compensation is not None)
            batches = read_rows(self, X, y, sample_weight, reset=True)
            rows = max(GAMMA_ROWS, learner.rows_wanted)
            survey = Survey.of(batches, features=None, kind=None, sample_size=rows, seed=learner.seed)
            self._learner, self._fixed, self.n_features_in_ = learner, settings, survey.features
            self._classes, self._class_weight, self._calibration = survey.labels[:0], np.zeros(0), Calibration()
        known, ours = len(self._classes), self._extended(survey.labels if classes is None else label_array(classes))
        columns = columns_of(survey.labels, ours)
        if (columns < 0).any():
            raise InputError(f"y holds labels that are not among `classes`: {survey.labels[columns < 0].tolist()}")
        learner = self._learner
        phase, total = survey.phase(ours, learner.backend.device), float(survey.weights.sum())
        learner.learn(phase)
        sample = survey.rows_for(ours, rows_wanted(total), learner.backend.device)
        left_out = review(learner, sample, phase.present, total, 0.0 if compensation is None else compensation)
        weight = np.ones(len(left_out)) if sample.weight is None else sample.weight.cpu().numpy()
        self._calibration = self._calibration.plus(left_out.numpy(), sample.columns.cpu().numpy(), weight, total)
        self._classes, self._class_weight = ours, np.pad(self._class_weight, (0, len(ours) - known))
        self._class_weight[columns] += survey.weights

    def _fresh(self, seed: int, compensated: bool) -> Learner:
        """A learner with the parameters of this model, which are checked; with a compensation stream or without."""
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
            team=current(),
        )

    def _settings(self) -> dict[str, Any]:
        """The parameters that are fixed from the first phase on."""
        return {name: value for name, value in self.get_params(deep=False).items() if name != "compensation"}

    def _survey(self, X: Any, y: Any, sample_weight: Any) -> Survey:
        """Read and check rows for a model that has learned before."""
        batches = read_rows(self, X, y, sample_weight, reset=False)
        kind, seed = kind_of(self.classes_), self._learner.seed
        return Survey.of(batches, features=self.n_features_in_, kind=kind, sample_size=MOST_ROWS, seed=seed)

    def _extended(self, labels: NDArray[Any]) -> NDArray[Any]:
        """The classes, then those of ``labels`` that are new, sorted."""
        if kind_of(labels) != kind_of(self._classes):
            raise InputError(f"labels mix types ({kind_of(self._classes)}, {kind_of(labels)}): use one type of label")
        return np.concatenate([self._classes, np.unique(labels[columns_of(labels, self._classes) < 0])])

    def _known_columns(self, labels: NDArray[Any]) -> NDArray[np.int64]:
        columns = columns_of(labels, self._classes)
        if (columns < 0).any():
            raise InputError(f"these classes were never learned: {labels[columns < 0].tolist()}")
        return columns

    def _keep(self, kept: NDArray[np.bool_]) -> None:
        """Drop all classes but those marked."""
        self._learner.keep(self._tensor(np.flatnonzero(kept)))
        self._classes, self._class_weight = self._classes[kept], self._class_weight[kept]

    def _tensor(self, columns: NDArray[np.int64]) -> torch.Tensor:
        return torch.from_numpy(columns).to(self._learner.backend.device)
