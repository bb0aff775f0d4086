"""``DSALClassifier``: dual-stream analytic learning for those who have features and labels."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import check_is_fitted

from dsal.activations import Activation
from dsal.classifier import files
from dsal.classifier.calibration import MOST_ROWS
from dsal.classifier.inference import Array, Inference
from dsal.classifier.inputs import Phase, read_rows
from dsal.classifier.labels import kind_of, label_array
from dsal.classifier.learned import Learned
from dsal.classifier.options import Options, checked_compensation, is_auto, seed_of
from dsal.errors import InputError
from dsal.store import StrPath
from dsal.tuning import GAMMA_ROWS


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

    def __init__(
        self,
        expansion_size: int = 8192,
        gamma: float | str = 0.1,
        gamma_comp: float | str | None = None,
        compensation: float | str | None = 0.6,
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
        with self._all_or_nothing():
            for name in ("_learned", "n_features_in_", "feature_names_in_"):
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
        with self._all_or_nothing():
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
        self._learned = self._learned.merged(other._learned)
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
        self._learned = self._learned.without(self._survey(X, y, sample_weight))
        if not keep_compensation and self.compensation is not None:
            self.compensation = 0.0
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
        return self._learned.leave_one_out(self._survey(X, y, None), self.compensation_)

    def loo_score(self, X: Any, y: Any) -> float:
        """Leave-one-out accuracy on rows of the last phase: see :meth:`loo_logits`."""
        return float((self.classes_[self.loo_logits(X, y).argmax(1)] == label_array(y)).mean())

    def condition(self) -> tuple[float, float | None]:
        """Estimated condition numbers of G + gamma I in the main and (if there is one) the compensation stream.

        Weights are good to about 1e-16 times that, relatively. Beyond 1e12, raise ``gamma`` or standardise features.
        """
        check_is_fitted(self)
        learner = self._learned.learner
        return learner.main.condition(), None if learner.comp is None else learner.comp.condition()

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
        return self._learned.classes

    @property
    def n_phases_(self) -> int:
        """Phases learned."""
        check_is_fitted(self)
        return self._learned.phases

    def __sklearn_is_fitted__(self) -> bool:
        """What ``check_is_fitted`` asks."""
        return hasattr(self, "_learned")

    def _learn(self, X: Any, y: Any, classes: Any, sample_weight: Any) -> None:
        options, settings = Options.of(self), self._settings()
        if self.__sklearn_is_fitted__():
            learned = self._learned
            changed = [name for name in settings if settings[name] != learned.settings[name]]
            if changed:
                raise InputError(f"{', '.join(changed)} cannot change once learning has begun: use fit to begin anew")
            phase = self._survey(X, y, sample_weight)
        else:
            seed = seed_of(self.random_state)
            rows = max(GAMMA_ROWS, options.size if options.expansion.wants_rows else 0)
            batches = read_rows(self, X, y, sample_weight, reset=True)
            phase = Phase.survey(batches, features=None, kind=None, sample_size=rows, seed=seed)
            learned = Learned.nothing(options, settings, seed, phase, self.compensation is not None)
            self.n_features_in_ = phase.features
        declared = phase.labels if classes is None else label_array(classes)
        ratio = None if is_auto(self.compensation) else checked_compensation(self.compensation)
        self._learned = learned.after(phase, declared, ratio)

    def _settings(self) -> dict[str, Any]:
        """The parameters that are fixed from the first phase on."""
        return {name: value for name, value in self.get_params(deep=False).items() if name != "compensation"}

    def _survey(self, X: Any, y: Any, sample_weight: Any) -> Phase:
        """Read and check rows for a model that has learned before."""
        batches = read_rows(self, X, y, sample_weight, reset=False)
        kind, seed = kind_of(self.classes_), self._learned.seed
        return Phase.survey(batches, features=self.n_features_in_, kind=kind, sample_size=MOST_ROWS, seed=seed)

    @contextmanager
    def _all_or_nothing(self) -> Iterator[None]:
        """If the block raises, every attribute is what it was before."""
        before = dict(self.__dict__)
        try:
            yield
        except BaseException:
            self.__dict__.clear()
            self.__dict__.update(before)
            raise
