"""What an image model has learned, and how features change it. Knows nothing of images, backbones or files."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy, deepcopy
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from dsal.analytic.activations import name_of
from dsal.analytic.combine import combined
from dsal.analytic.expansion import RandomProjection
from dsal.analytic.head import AnalyticHead
from dsal.classifier import DSALClassifier, classifier_files
from dsal.classifier.calibration import Calibration
from dsal.classifier.inputs import columns_of
from dsal.distributed import Team
from dsal.errors import InputError
from dsal.files.atomic import StrPath
from dsal.image_model.novelty import ClassStatistics
from dsal.image_model.novelty_reference import Expected, NoveltyReference, expected_scores, inverse_trace
from dsal.image_model.outcomes import LeftOut, Lesson, added, counted, restricted
from dsal.image_model.predictor import ACTIVATIONS, Head, LightHead, Predictor, Single
from dsal.image_model.seen import Seen
from dsal.image_model.version import EXPANSION, AnyArray, Version, in_memory, state_arrays

_MAX_LEFT_OUT = 2000  # rows judged leave-one-out; enough to know the accuracy to one per cent
_SAMPLED = 20  # rows sampled per class to estimate the temperature of a merged model

Keys = Sequence[bytes | None]
Double = NDArray[np.float64]


class LearnedState:
    """A classifier with the statistics for novelty, leave-one-out counts, and the record of learned images.

    Methods that change it are not all or nothing: :class:`~dsal.image_model.ImageModel` restores it after an error.

    Args:
        classifier: the classifier, unfitted, or as it was when the state was saved.
        features: width of the features.

    Attributes: see :class:`~dsal.image_model.ImageModel`.
    """

    def __init__(self, classifier: DSALClassifier, features: int) -> None:
        self.classifier = classifier
        self.statistics = ClassStatistics.nothing(features)
        self.reference = NoveltyReference.nothing()
        self.left_out: LeftOut = {}
        self.seen = Seen()

    @property
    def taught(self) -> bool:
        """Whether anything was learned."""
        return self.classifier.__sklearn_is_fitted__()

    @property
    def classes(self) -> tuple[str, ...]:
        """Labels in the order in which they were learned."""
        return tuple(self.classifier.classes_.tolist()) if self.taught else ()

    def check_taught(self) -> None:
        """Raise InputError if nothing was learned."""
        if not self.taught:
            raise InputError("the model has learned nothing yet: teach it some images first")

    def learn(self, x: Single, y: NDArray[Any], keys: Keys) -> Lesson:
        """Learn a phase of features (n, d) with labels (n,) and content keys (n)."""
        known, labels = self.classes, set(y.tolist())
        new = sorted(labels - set(known))
        columns = columns_of(y, np.array([*known, *new]))
        self.statistics = self.statistics.plus(x, columns, len(known) + len(new))
        self.classifier.partial_fit(x, y)
        picked = np.random.default_rng(0).permutation(len(y))[:_MAX_LEFT_OUT]
        rows, columns = x[picked], columns[picked]
        logits = self._main_stream().loo_logits(rows, y[picked])
        self._measure(logits.max(1), self.statistics.loo_distances(rows, columns), columns)
        answers = logits.argmax(1)
        self.left_out = added(self.left_out, counted(self.classes, columns, answers))
        self.seen = self.seen.plus(keys, y.tolist())
        judged = (self.statistics.counts > 1.5)[columns] & (len(self.classes) > 1)
        accuracy = float((answers == columns)[judged].mean()) if judged.any() else float("nan")
        wrong = np.flatnonzero(answers != columns) if len(self.classes) > 1 else ()
        mistaken = sorted((int(picked[at]), self.classes[answers[at]]) for at in wrong)
        taught_more = tuple(sorted(labels & set(known)))
        return Lesson(len(y), tuple(new), taught_more, (), accuracy, mistaken=tuple(mistaken))

    def forget(self, x: Single, y: NDArray[Any], keys: Keys) -> None:
        """Forget features (n, d) that were learned with labels (n,) and content keys (n).

        Afterwards nothing depends on them: sums are subtracted, and what was measured with them is estimated from the
        sums that are left or, like the leave-one-out counts, begins anew.
        """
        self._subtract(x, y, keys, keep_compensation=False)
        self.left_out = {}
        self.reference = NoveltyReference.nothing()
        self._renew()

    def relabel(self, x: Single, old: NDArray[Any], new: NDArray[Any], keys: Keys, keep_compensation: bool) -> None:
        """Move features (n, d) with content keys (n) from the labels ``old`` (n,) to ``new`` (n,)."""
        self.classifier.partial_fit(x, new)
        columns = columns_of(new, self.classifier.classes_)
        self.statistics = self.statistics.plus(x, columns, len(self.classes))
        self.seen = self.seen.plus(keys, new.tolist())
        self._subtract(x, old, keys, keep_compensation)
        self._renew()

    def merge(self, other: LearnedState) -> None:
        """Add what ``other`` has learned."""
        self.classifier.merge(other.classifier)
        classes = self.classifier.classes_
        columns = columns_of(other.classifier.classes_, classes)
        self.statistics = self.statistics.merged(other.statistics, columns, len(classes))
        self.seen = self.seen.merged(other.seen)
        self.left_out = added(self.left_out, other.left_out)
        self.reference = self.reference.merged(other.reference)
        self._renew()
        self._estimate_calibration()

    def predictor(self) -> Predictor:
        """Return a predictor that later changes do not affect."""
        return Predictor(
            self.classes,
            _head(self.classifier),
            self.classifier._calibration.temperature,
            self.statistics.light_distance,
            self.reference,
        )

    def version(self, id: str, *, learning: bool | None = None, copied: bool = True) -> Version:
        """Return the state as a version, without the :meth:`expansion`.

        Args:
            id: of the version.
            learning: whether to include what further learning needs; by default, if it is there.
            copied: whether to copy the arrays, so that later changes cannot affect them.
        """
        if not self.taught:
            return Version(id, "", {}, {}, {})
        learning = self.classifier.learns_on if learning is None else learning
        parts, meta = classifier_files.pack(self.classifier, learning)
        arrays = {f"classifier.{name}": _array(value, copied) for name, value in parts.items()}
        own = {name: array for name, array in arrays.items() if not name.startswith(EXPANSION)}
        more = state_arrays(self.statistics, self.reference, self.seen, self.classes)
        return Version(id, "", {**own, **more}, meta, deepcopy(self.left_out))

    def expansion(self) -> dict[str, AnyArray]:
        """Return the arrays that all versions of the model share; none if nothing was learned."""
        arrays = self.classifier._learner.state(learning=False) if self.taught else {}
        return {f"classifier.{name}": array for name, array in arrays.items() if name.startswith("expansion.")}

    @classmethod
    def of(
        cls, version: Version, features: int, device: str | torch.device, team: Team, where: StrPath
    ) -> LearnedState:
        """Return the state of a version that has all arrays, the expansion too; ``where`` is for error messages."""
        state = cls(DSALClassifier(), features)
        state.classifier.team = team
        classifier_files.unpack(state.classifier, version.part("classifier"), version.meta, where, device)
        state.statistics = ClassStatistics(**version.part("novelty"))
        state.reference = NoveltyReference.from_arrays(**version.part("usual"))
        state.seen = Seen.from_arrays(version.part("seen"), state.classes)
        state.left_out = deepcopy(version.left_out)
        return state

    def at(self, version: Version) -> LearnedState:
        """Return the state of a version of the same model; if it lacks the expansion, that is the present one."""
        classifier, features = self.classifier, self.statistics.sums.shape[1]
        if not version.meta:
            unfitted = DSALClassifier(**classifier.get_params(deep=False))
            unfitted.team = classifier.team
            return LearnedState(unfitted, features)
        arrays = {**self.expansion(), **version.arrays}
        whole = replace(version, arrays={name: _array(value, copied=True) for name, value in arrays.items()})
        return LearnedState.of(whole, features, classifier.device, classifier.team, "the earlier version")

    def _subtract(self, x: Single, y: NDArray[Any], keys: Keys, keep_compensation: bool) -> None:
        before = self.classes
        columns = columns_of(y, self.classifier.classes_)
        self.classifier.forget(x, y, keep_compensation=keep_compensation)
        kept = columns_of(self.classifier.classes_, np.array(before))
        self.statistics = self.statistics.plus(x, columns, len(before), sign=-1.0).kept(kept)
        self.seen = self.seen.minus(keys, y.tolist())
        self.left_out = restricted(self.left_out, self.classes)

    def _main_stream(self) -> DSALClassifier:
        """Return the main stream alone, whose leave-one-out logits are exact; it shares the classifier's state."""
        main = copy(self.classifier)
        main.compensation = 0.0
        return main

    def _measure(self, logits: Double, distances: Double, columns: NDArray[np.int64]) -> None:
        """Take leave-one-out scores (n,) of learned rows of the classes ``columns`` into the novelty reference."""
        expected = self.classifier.team.broadcast_result(self._expected) if len(self.classes) > 1 else None
        if expected is None:  # one class has nothing to be distant from
            self.reference = self.reference.plus(logits, distances)
        else:
            measured = self.reference.measured(logits, distances, columns, expected)
            self.reference = measured.renewed(expected, self.statistics.counts)

    def _renew(self) -> None:
        """Bring the novelty reference up to date after a change."""
        expected = self.classifier.team.broadcast_result(self._expected)
        if expected is not None:
            self.reference = self.reference.renewed(expected, self.statistics.counts)

    def _expected(self) -> Expected | None:
        """Return what the model expects of new images of its classes, from sums alone.

        None if no class has two images, or if the model can no longer learn. Of several processes only the first has
        the sums: the others get its answer.
        """
        learner = self.classifier._learner
        if not (learner.learns_on and self.statistics.have_scatter):
            return None
        ridge = learner.ridges[0]
        targets, weights = (part.T.cpu().numpy() for part in (ridge.targets, ridge.weights()))

        def solve(b: Double) -> Double:
            return ridge.solve(torch.from_numpy(b).to(ridge.targets.device)).cpu().numpy()

        trace = inverse_trace(solve, ridge.size)
        return expected_scores(targets, weights, ridge.gamma, trace, self.statistics)

    def _estimate_calibration(self) -> None:
        """Estimate the calibration from the sums alone.

        Models that were merged measured it only for their own classes and their own logits. Features sampled from the
        class means and the covariance take the place of images.
        """
        x, columns = self.statistics.sample(_SAMPLED)
        images, logits = float(self.statistics.counts.sum()), self.classifier.logits(x)
        self.classifier._calibration = Calibration().plus(logits, columns, np.ones(len(x)), images)


def _head(classifier: DSALClassifier) -> Head:
    """Return both streams of a classifier in float32: in NumPy if it can, in PyTorch otherwise."""
    head = classifier.to_torch()
    names = classifier.main_activation, classifier.activation
    if not isinstance(head.expansion, RandomProjection) or not all(name in ACTIVATIONS for name in names):
        return _TorchHead(head)
    return LightHead(
        head.expansion.projection.numpy(),
        name_of(names[0]),
        head.main.numpy(),
        name_of(names[1]),
        None if head.comp is None else head.comp.numpy(),
        head.compensation,
    )


class _TorchHead:
    """Both streams of a classifier in PyTorch, for expansions and activations that NumPy does not know."""

    def __init__(self, head: AnalyticHead) -> None:
        self.head = head

    def __call__(self, x: Single) -> tuple[Single, Single]:
        """Return the logits (n, c) of the main stream and of both, for features (n, d)."""
        head = self.head
        with torch.no_grad():
            z = head.expansion(torch.from_numpy(x))
            main = head.main_activation(z) @ head.main
            if head.comp is None:
                return main.numpy(), main.numpy()
            return main.numpy(), combined(main, head.activation(z) @ head.comp, head.compensation).numpy()


def _array(value: AnyArray | torch.Tensor, copied: bool) -> NDArray[Any]:
    array = value.detach().cpu().numpy() if isinstance(value, torch.Tensor) else in_memory(value)
    return array.copy() if copied else array
