"""``ImageModel``: images in, labels out; learns on, forgets nothing, and says what it was never taught."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from dsal import __version__
from dsal.backbones.backbone import Backbone
from dsal.backbones.hub import DEFAULT, as_backbone
from dsal.classifier import DSALClassifier
from dsal.classifier.calibration import Calibration
from dsal.classifier.labels import columns_of
from dsal.data.decode import ImageSource
from dsal.distributed import current
from dsal.errors import InputError, UnknownNameError
from dsal.images import files
from dsal.images.answering import Answerer, check_question
from dsal.images.answers import Evaluation, Lesson, Prediction, Predictions
from dsal.images.novelty import ClassStatistics, Usual
from dsal.images.reading import feature_batches, read_features
from dsal.images.seen import Seen
from dsal.images.sources import Images, Labelled, LabelledImages, content_keys, labelled_images, unlabelled_images
from dsal.images.version import Version
from dsal.progress import OnProgress
from dsal.store import StrPath

DEFAULTS: dict[str, Any] = {"gamma": 100.0}
"""Of the classifier on own images, chosen by benchmarks/few_images.py: see docs/own-images.md."""

THRESHOLD = 0.95  # of novelty: one in twenty images of known classes is flagged
HISTORY = 1  # changes that can be undone; each costs as much memory and disk as the learning part of the model
_SAMPLED = 20  # rows of each class from which a merged model estimates what is usual
_MOST_LEFT_OUT = 2000  # rows looked at leave-one-out; enough for one per cent of accuracy


class ImageModel:
    """A frozen backbone, a :class:`~dsal.DSALClassifier` on its features, and the statistics of novelty.

    If a call raises, the model is what it was before.

    Args:
        backbone: a name (see ``dsal.backbones.hub``), a :class:`~dsal.backbones.Backbone`, or any ``nn.Module``.
        classifier: a classifier that has learned nothing yet; by default with :data:`DEFAULTS`.
        device: where the backbone runs.

    Attributes:
        statistics: sums over the features of each class.
        usual: what images of known classes look like.
        left_out: how often images of a class (first key) were taken for a class (second key), each as if it had not
            been learned, by the main stream at the time of its lesson; not counted while there is only one class.
        seen: hashes of the images learned, with their labels.
        history: the model before each of the last changes, newest first: what :meth:`undo` goes back to.
        notes: whatever a program wants to keep with the model, as JSON can hold it.
        version: of the package that made the model, or wrote its file.
    """

    def __init__(
        self,
        backbone: str | Backbone | nn.Module = DEFAULT,
        classifier: DSALClassifier | None = None,
        device: str | torch.device = "cpu",
    ) -> None:
        self.backbone = as_backbone(backbone).to(device)
        self.classifier = DSALClassifier(**DEFAULTS) if classifier is None else classifier
        self.statistics = ClassStatistics.nothing(self.backbone.widths["stages"])
        self.usual = Usual.nothing()
        self.left_out: dict[str, dict[str, int]] = {}
        self.seen = Seen()
        self.history: tuple[Version, ...] = ()
        self.notes: dict[str, Any] = {}
        self.version = __version__

    @property
    def learns_on(self) -> bool:
        """Whether the model can learn, merge and forget, or was saved without what that needs."""
        return not self._taught or self.classifier.learns_on

    @property
    def classes(self) -> tuple[str, ...]:
        """Labels in order of arrival."""
        return tuple(self.classifier.classes_.tolist()) if self._taught else ()

    @property
    def counts(self) -> dict[str, int]:
        """Images learned of each class."""
        return dict(zip(self.classes, self.statistics.counts.round().astype(int).tolist(), strict=True))

    def learn(
        self, source: Labelled, *, again: bool = False, broken: str = "stop", progress: OnProgress | None = None
    ) -> Lesson:
        """Learn a phase: new classes, more images of known ones, or both.

        Images that were learned before are recognised by their content and left out, so a folder that grows can be
        learned again and again.

        Args:
            source: ``FOLDER/<class>/*``, a CSV of path and label, or a pair: images (paths, bytes of image files,
                Pillow images, uint8 arrays) and one label for each.
            again: whether to learn images that were learned before once more; they then count twice.
            broken: ``"stop"`` or ``"skip"``: what to do with images that cannot be read.
            progress: called with (images read, images in all).
        """
        given = labelled_images(source)
        keys = current().told(lambda: content_keys(given.images))
        rows, moved = (list(range(len(keys))), ()) if again else self._unseen(given, keys)
        repeated = len(keys) - len(rows) - len(moved)
        if not rows:
            return Lesson(0, (), (), (), float("nan"), repeated, moved)
        new = given.take(rows)
        found = read_features(self.backbone, new.images, broken=broken, progress=progress)
        labels, found_keys = np.array(new.labels)[found.rows], [keys[rows[row]] for row in found.rows]
        lesson = self.learn_features(found.x, labels, found_keys)
        return replace(lesson, broken=found.broken, repeated=repeated, moved=moved)

    def learn_features(
        self, x: NDArray[np.float32], y: NDArray[Any], keys: Sequence[bytes | None] | None = None
    ) -> Lesson:
        """Learn a phase of features (n, d) that ``backbone.extract`` gave, with their labels (n,).

        ``keys`` identify the images (:func:`~dsal.images.sources.content_keys`); without them they are not recognised
        when they come again.
        """
        known = self.classes
        new = sorted(set(y.tolist()) - set(known))
        columns = columns_of(y, np.array([*known, *new]))
        with self._change(f"learned {len(y)} images of {_listed(sorted(set(y.tolist())))}"):
            statistics = self.statistics.plus(x, columns, len(known) + len(new))
            self.classifier.partial_fit(x, y)
            self.statistics = statistics
            picked = np.random.default_rng(0).permutation(len(y))[:_MOST_LEFT_OUT]
            logits = self._main_stream().loo_logits(x[picked], y[picked])
            self.usual = self.usual.plus(logits.max(1), statistics.loo_distances(x[picked], columns[picked]))
            answers = logits.argmax(1)
            self._count_left_out(columns[picked], answers)
            self.seen = self.seen.plus([None] * len(y) if keys is None else keys, y.tolist())
        judged = (statistics.counts > 1.5)[columns[picked]] & (len(self.classes) > 1)
        return Lesson(
            images=len(y),
            new_classes=tuple(new),
            known_classes=tuple(sorted(set(y.tolist()) & set(known))),
            broken=(),
            loo_accuracy=float((answers == columns[picked])[judged].mean()) if judged.any() else float("nan"),
        )

    def predict(
        self,
        images: Images,
        *,
        top_k: int = 5,
        threshold: float = THRESHOLD,
        broken: str = "stop",
        progress: OnProgress | None = None,
    ) -> Predictions:
        """Labels of images, with probabilities and novelty.

        Args:
            images: a file, a folder (all images below it), bytes of an image file, a Pillow image, a uint8 array
                (h, w, 3), or several of them.
            top_k: how many of the most likely classes to give.
            threshold: novelty above which an image is flagged.
            broken: ``"stop"`` or ``"skip"``: what to do with images that cannot be read.
            progress: called with (images read, images in all).
        """
        sources = unlabelled_images(images)
        answers, reasons = Predictions(), list[str]()
        for answer in self.predictions(sources, top_k=top_k, threshold=threshold, broken=broken):
            if isinstance(answer, str):
                reasons.append(answer)
            else:
                answers.append(answer)
            if progress is not None:
                progress(len(answers) + len(reasons), len(sources))
        answers.broken = tuple(reasons)
        return answers

    def predictions(
        self, images: Sequence[ImageSource], *, top_k: int = 5, threshold: float = THRESHOLD, broken: str = "stop"
    ) -> Iterator[Prediction | str]:
        """Answers one by one, as they are made; for an image that is skipped, the reason. See :meth:`predict`."""
        self._check_taught()
        check_question(top_k, threshold)
        batches = feature_batches(self.backbone, images, broken=broken)
        return self._answerer().stream(batches, images, top_k=top_k, threshold=threshold)

    def _answerer(self) -> Answerer:
        main = self._main_stream()

        def logits(x: NDArray[np.float32]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
            return main.logits(x), self.classifier.logits(x)

        temperature = self.classifier._calibration.temperature
        return Answerer(self.classes, logits, temperature, self.statistics, self.usual)

    def evaluate(self, source: Labelled, *, broken: str = "stop", progress: OnProgress | None = None) -> Evaluation:
        """Answers for labelled images against their labels; images of classes never taught should be flagged."""
        self._check_taught()
        given = labelled_images(source)
        found = read_features(self.backbone, given.images, broken=broken, progress=progress)
        x, y = found.x, np.array(given.labels)[found.rows]
        columns = columns_of(y, self.classifier.classes_)
        flagged = self._answerer().scores(x)[1] > THRESHOLD
        known = columns >= 0
        confusion = np.zeros((len(self.classes),) * 2, dtype=np.int64)
        if known.any():
            answers = self.classifier.logits(x[known]).argmax(1)
            np.add.at(confusion, (columns[known], answers), 1)
        return Evaluation(
            classes=self.classes,
            confusion=confusion,
            unknown=int((~known).sum()),
            unknown_flagged=int(flagged[~known].sum()),
            known_flagged=int(flagged[known].sum()),
            broken=found.broken,
        )

    def merge(self, other: ImageModel, *, again: bool = False) -> ImageModel:
        """Learn all that ``other`` has learned, without its images; see :meth:`dsal.DSALClassifier.merge`.

        Probabilities and novelty of the result are estimated from its sums: each side learned them about its own
        classes.

        Args:
            other: stays as it is.
            again: whether images that both models have learned may count twice.

        Raises:
            InputError: the models have different backbones or expansions, or images in common.
        """
        self._check_taught()
        other._check_taught()
        if self.backbone.fingerprint() != other.backbone.fingerprint():
            raise InputError(
                f"only models with the same backbone merge: {self.backbone.card.architecture} and "
                f"{other.backbone.card.architecture} differ in architecture, weights or preprocessing"
            )
        shared = self.seen.shared(other.seen)
        if shared and not again:
            raise InputError(
                f"both models have learned the same {shared} images, which would count twice: forget them in one of "
                "the models, or merge with again=True (--again)"
            )
        with self._change(f"merged {len(other.classes)} classes of another model"):
            self.classifier.merge(other.classifier)
            classes = self.classifier.classes_
            columns = columns_of(other.classifier.classes_, classes)
            self.statistics = self.statistics.merged(other.statistics, columns, len(classes))
            self.seen = self.seen.merged(other.seen)
            self._add_left_out(other.left_out)
            self._estimate()
        return self

    def _estimate(self) -> None:
        """Probabilities and novelty for a merged model, from its sums alone.

        What either side knew of them was about its own classes and its own logits. Features are sampled by the means
        and the covariance of the classes, and looked at in place of images.
        """
        x, columns = self.statistics.sample(_SAMPLED)
        images = float(self.statistics.counts.sum())
        main = self._main_stream().logits(x).max(1)
        self.usual = Usual.estimated(main, self.statistics.distances(x), images)
        logits = self.classifier.logits(x)
        self.classifier._calibration = Calibration().plus(logits, columns, np.ones(len(x)), images)

    def forget(
        self,
        source: Labelled,
        *,
        keep_compensation: bool = False,
        broken: str = "stop",
        progress: OnProgress | None = None,
    ) -> int:
        """Unlearn images that were learned, exactly in the main stream; see :meth:`dsal.DSALClassifier.forget`.

        What is usual in known images (:class:`~dsal.images.novelty.Usual`) stays as it was learned.

        Returns:
            How many images were unlearned.
        """
        self._check_taught()
        given = labelled_images(source)
        keys = content_keys(given.images)
        self._check_seen(given, keys)
        found = read_features(self.backbone, given.images, broken=broken, progress=progress)
        x, y = found.x, np.array(given.labels)[found.rows]
        with self._change(f"forgot {len(y)} images of {_listed(sorted(set(y.tolist())))}"):
            self._forget(x, y, [keys[row] for row in found.rows], keep_compensation)
        return len(y)

    def relabel(
        self,
        source: Labelled | Images,
        new_label: str | None = None,
        *,
        keep_compensation: bool = False,
        broken: str = "stop",
        progress: OnProgress | None = None,
    ) -> int:
        """Move images that were learned under the wrong label to the right one, exactly in the main stream.

        Which label they were learned under is known from their content. As in :meth:`forget`, the compensation stream
        still carries the old labels, so the model answers by the main stream alone unless ``keep_compensation``.

        Args:
            source: images, if ``new_label`` is given; else labelled images (see :meth:`learn`), whose labels are the
                right ones: those learned under them already stay as they are.
            new_label: the right label of all images.
            keep_compensation: whether to go on using the compensation stream.
            broken: ``"stop"`` or ``"skip"``: what to do with images that cannot be read.
            progress: called with (images read, images in all).

        Returns:
            How many images got another label.
        """
        self._check_taught()
        if new_label is None:
            given = labelled_images(source)  # type: ignore[arg-type]
        else:
            images = unlabelled_images(source)  # type: ignore[arg-type]
            given = LabelledImages(images, (new_label,) * len(images))
        keys = content_keys(given.images)
        learned = [self.seen.labels(key) for key in keys]
        unknown = [image for image, labels in zip(given.images, learned, strict=True) if not labels]
        if unknown and new_label is not None:
            raise InputError(f"{_counted(unknown)} never learned: learn them under their right label instead")
        rows = [row for row, labels in enumerate(learned) if labels and given.labels[row] not in labels]
        if not rows:
            return 0
        wrong = given.take(rows)
        found = read_features(self.backbone, wrong.images, broken=broken, progress=progress)
        new = np.array(wrong.labels)[found.rows]
        old = np.array([learned[rows[row]][0] for row in found.rows])
        moved_keys = [keys[rows[row]] for row in found.rows]
        with self._change(f"relabelled {len(new)} images as {_listed(sorted(set(new.tolist())))}"):
            self.classifier.partial_fit(found.x, new)
            columns = columns_of(new, self.classifier.classes_)
            self.statistics = self.statistics.plus(found.x, columns, len(self.classes))
            self.seen = self.seen.plus(moved_keys, new.tolist())
            self._forget(found.x, old, moved_keys, keep_compensation)
        return len(new)

    def rename(self, old: str, new: str) -> None:
        """Give a class another name; nothing else changes."""
        self._check_known(old)
        if not new or new in self.classes:
            raise InputError(f"{new!r} is a class already: choose another name" if new else "the new name is empty")
        with self._change(f"renamed {old} to {new}"):
            self.classifier.rename_class(old, new)
            self.seen = self.seen.renamed(old, new)
            self.left_out = {
                _renamed(label, old, new): {_renamed(answer, old, new): images for answer, images in answers.items()}
                for label, answers in self.left_out.items()
            }

    def drop(self, label: str) -> None:
        """Take a class out of the model, which never answers it again unless it is taught anew.

        Its images still count as examples of what the other classes are not. To remove every trace of them, forget
        the images instead (:meth:`forget`), which needs them once more.
        """
        self._check_known(label)
        if len(self.classes) == 1:
            raise InputError("nothing would be left of the model: make a new one instead")
        column = self.classes.index(label)
        with self._change(f"dropped {label}"):
            self.classifier.drop_class(label)
            self.statistics = self.statistics.without_class(column)
            self.seen = self.seen.renamed(label, None)
            self._drop_left_out()

    def undo(self) -> str:
        """Go back to the model before the last change, bit for bit.

        The last change is one call of :meth:`learn`, :meth:`merge`, :meth:`forget`, :meth:`relabel`, :meth:`rename` or
        :meth:`drop`; what it goes back to is part of the model file.

        Returns:
            What was undone, in words.
        """
        if not self.history:
            raise InputError(f"there is nothing to undo: of the changes before, the last {HISTORY} can be undone")
        version, *older = self.history
        version.restore(self)
        self.history = tuple(older)
        return version.change

    def save(self, path: StrPath, learning: bool = True) -> None:
        """Write the model to one file, whole or not at all; ``learning=False`` leaves out what learning on needs."""
        self._check_taught()
        files.save(self, path, learning)

    @classmethod
    def load(
        cls, path: StrPath, backbone: Backbone | nn.Module | None = None, device: str | torch.device = "cpu"
    ) -> ImageModel:
        """The model that :meth:`save` wrote.

        Args:
            path: the file.
            backbone: the one it was made with; needed only if that was a module of your own.
            device: where the backbone runs.
        """
        return files.load(path, backbone, device)

    @property
    def _taught(self) -> bool:
        return self.classifier.__sklearn_is_fitted__()

    def _check_taught(self) -> None:
        if not self._taught:
            raise InputError("the model has learned nothing yet: teach it a folder of images first")

    def _count_left_out(self, columns: NDArray[np.int64], answers: NDArray[np.int64]) -> None:
        """Add the leave-one-out answers to rows of a lesson; both are column numbers (n,)."""
        if len(self.classes) > 1:
            pairs = Counter(zip(columns.tolist(), answers.tolist(), strict=True))
            for (column, answer), images in pairs.items():
                self._add_left_out({self.classes[column]: {self.classes[answer]: images}})

    def _add_left_out(self, counts: dict[str, dict[str, int]]) -> None:
        for label, answers in counts.items():
            row = self.left_out.setdefault(label, {})
            for answer, images in answers.items():
                row[answer] = row.get(answer, 0) + images

    def _drop_left_out(self) -> None:
        """Only the counts of classes that are still there."""
        self.left_out = {
            label: {answer: images for answer, images in answers.items() if answer in self.classes}
            for label, answers in self.left_out.items()
            if label in self.classes
        }

    def _forget(
        self, x: NDArray[np.float32], y: NDArray[Any], keys: Sequence[bytes | None], keep_compensation: bool
    ) -> None:
        """Unlearn features (n, d) of images with their labels (n,)."""
        before = self.classes
        columns = columns_of(y, self.classifier.classes_)
        self.classifier.forget(x, y, keep_compensation=keep_compensation)
        kept = columns_of(self.classifier.classes_, np.array(before))
        self.statistics = self.statistics.plus(x, columns, len(before), sign=-1.0).kept(kept)
        self.seen = self.seen.minus(keys, y.tolist())
        self._drop_left_out()

    @contextmanager
    def _change(self, change: str) -> Iterator[None]:
        """All or nothing, and one step of the history; in a team rank 0 keeps both, as it keeps what was learned."""
        team = current()
        before = Version.of(self, change) if team.leads else None
        try:
            yield
        except BaseException:
            if before is not None:
                before.restore(self)
            raise
        if before is not None:
            self.history = (before, *self.history)[:HISTORY]

    def _unseen(
        self, given: LabelledImages, keys: Sequence[bytes | None]
    ) -> tuple[list[int], tuple[tuple[str, str, str], ...]]:
        """Rows of content that is new, each once; and images that were learned under other labels."""
        rows, moved = [], []
        lesson = set[tuple[bytes, str]]()
        for row, (key, label) in enumerate(zip(keys, given.labels, strict=True)):
            learned = self.seen.labels(key)
            if learned and label not in learned:
                moved.append((_name(given.images[row]), label, learned[0]))
            elif not learned and (key is None or (key, label) not in lesson):
                rows.append(row)
            if key is not None:
                lesson.add((key, label))
        return rows, tuple(moved)

    def _check_seen(self, given: LabelledImages, keys: Sequence[bytes | None]) -> None:
        """Refuse to forget what was never learned: the sums would come out wrong."""
        if not len(self.seen):
            return  # learned as features, without keys
        strange = [
            image
            for image, key, label in zip(given.images, keys, given.labels, strict=True)
            if key is not None and label in self.classes and label not in self.seen.labels(key)
        ]
        if strange:
            raise InputError(f"{_counted(strange)} never learned under that label, so cannot be forgotten")

    def _check_known(self, label: str) -> None:
        self._check_taught()
        if label not in self.classes:
            raise UnknownNameError("class", label, self.classes)

    def _main_stream(self) -> DSALClassifier:
        """The classifier's main stream alone, whose leave-one-out logits are exact; shares what was learned."""
        main = copy(self.classifier)
        main.compensation = 0.0
        return main


def _listed(labels: Sequence[str]) -> str:
    """Some class names, for people."""
    return ", ".join(labels[:5]) + (f" and {len(labels) - 5} more" if len(labels) > 5 else "")


def _counted(images: Sequence[object]) -> str:
    """How many images, and which is the first."""
    return f"{_name(images[0])} was" if len(images) == 1 else f"{len(images)} images ({_name(images[0])}, ...) were"


def _name(image: object) -> str:
    return str(image) if isinstance(image, Path) else "an image"


def _renamed(label: str, old: str, new: str) -> str:
    return new if label == old else label
