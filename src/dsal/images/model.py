"""``ImageModel``: image files in, labels out; learns on, forgets nothing, and says what it was never taught."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from copy import copy
from dataclasses import replace
from os import PathLike
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
from dsal.classifier.labels import columns_of
from dsal.data.dataset import Progress
from dsal.data.folder import ImageFiles, find_images, read_files
from dsal.errors import InputError
from dsal.images import files
from dsal.images.answers import Evaluation, Lesson, Prediction, Predictions
from dsal.images.novelty import ClassStatistics, Usual
from dsal.images.reading import read_features
from dsal.store import StrPath

THRESHOLD = 0.95  # of novelty: one in twenty images of known classes is flagged
_MOST_LEFT_OUT = 2000  # rows looked at leave-one-out; enough for one per cent of accuracy


class ImageModel:
    """A frozen backbone, a :class:`~dsal.DSALClassifier` on its features, and the statistics of novelty.

    If a call raises, the model is what it was before.

    Args:
        backbone: a name (see ``dsal.backbones.hub``), a :class:`~dsal.backbones.Backbone`, or any ``nn.Module``.
        classifier: a classifier that has learned nothing yet; by default d_B = 4096 and the paper's other values.
        device: where the backbone runs.

    Attributes:
        statistics: sums over the features of each class.
        usual: what images of known classes look like.
        left_out: how often images of a class (first key) were taken for a class (second key), each as if it had not
            been learned, by the main stream at the time of its lesson; not counted while there is only one class.
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
        self.classifier = DSALClassifier(expansion_size=4096) if classifier is None else classifier
        self.statistics = ClassStatistics.nothing(sum(self.backbone.stage_widths))
        self.usual = Usual.nothing()
        self.left_out: dict[str, dict[str, int]] = {}
        self.notes: dict[str, Any] = {}
        self.version = __version__

    @property
    def learns_on(self) -> bool:
        """Whether the model can learn, merge and forget, or was saved without what that needs."""
        return not self._taught or self.classifier._learned.streams is not None

    @property
    def classes(self) -> tuple[str, ...]:
        """Labels in order of arrival."""
        return tuple(self.classifier.classes_.tolist()) if self._taught else ()

    @property
    def counts(self) -> dict[str, int]:
        """Images learned of each class."""
        return dict(zip(self.classes, self.statistics.counts.round().astype(int).tolist(), strict=True))

    def learn(self, source: StrPath | ImageFiles, *, broken: str = "stop", progress: Progress | None = None) -> Lesson:
        """Learn a phase: new classes, more images of known ones, or both.

        Args:
            source: ``FOLDER/<class>/*``, a CSV of path and label, or files with labels.
            broken: ``"stop"`` or ``"skip"``: what to do with files that cannot be read.
            progress: called with (images read, images in all).
        """
        x, y, reasons = self._read(source, broken, progress)
        return replace(self.learn_features(x, y), broken=reasons)

    def learn_features(self, x: NDArray[np.float32], y: NDArray[Any]) -> Lesson:
        """Learn a phase of features (n, d) that ``backbone.extract`` gave, with their labels (n,)."""
        known = self.classes
        new = sorted(set(y.tolist()) - set(known))
        columns = columns_of(y, np.array([*known, *new]))
        statistics = self.statistics.plus(x, columns, len(known) + len(new))
        self.classifier.partial_fit(x, y)
        self.statistics = statistics
        picked = np.random.default_rng(0).permutation(len(y))[:_MOST_LEFT_OUT]
        logits = self._main_stream().loo_logits(x[picked], y[picked])
        self.usual = self.usual.plus(logits.max(1), statistics.loo_distances(x[picked], columns[picked]))
        answers = logits.argmax(1)
        self._count_left_out(columns[picked], answers)
        return Lesson(
            images=len(y),
            new_classes=tuple(new),
            known_classes=tuple(sorted(set(y.tolist()) & set(known))),
            broken=(),
            loo_accuracy=float((answers == columns[picked]).mean()),
        )

    def predict(
        self,
        images: StrPath | Iterable[StrPath],
        *,
        top_k: int = 5,
        threshold: float = THRESHOLD,
        broken: str = "stop",
        progress: Progress | None = None,
    ) -> Predictions:
        """Labels of image files, with probabilities and novelty.

        Args:
            images: a file, a folder (all images below it), or several of them.
            top_k: how many of the most likely classes to give.
            threshold: novelty above which an image is flagged.
            broken: ``"stop"`` or ``"skip"``: what to do with files that cannot be read.
            progress: called with (images read, images in all).
        """
        self._check_taught()
        if not 0 <= threshold <= 1:
            raise InputError(f"the threshold of novelty must be from 0 to 1, got {threshold}")
        if top_k < 1:
            raise InputError(f"top_k must be at least 1, got {top_k}")
        sources = [images] if isinstance(images, (str, PathLike)) else images
        paths = find_images(map(Path, sources))
        found = read_features(self.backbone, paths, broken=broken, progress=progress)
        likely = self.classifier.predict_proba(found.x)
        order = np.argsort(-likely, axis=1, kind="stable")[:, :top_k]
        novelty = self._novelty(found.x)
        answers = Predictions()
        answers.broken = found.broken
        for row, best, chances, strange in zip(found.rows, order, likely, novelty, strict=True):
            ranked = tuple((self.classes[column], float(chances[column])) for column in best)
            answers.append(
                Prediction(paths[row], *ranked[0], ranked, novelty=float(strange), novel=bool(strange > threshold))
            )
        return answers

    def evaluate(
        self, source: StrPath | ImageFiles, *, broken: str = "stop", progress: Progress | None = None
    ) -> Evaluation:
        """Answers for labelled images against their labels; images of classes never taught should be flagged."""
        self._check_taught()
        x, y, reasons = self._read(source, broken, progress)
        columns = columns_of(y, self.classifier.classes_)
        flagged = self._novelty(x) > THRESHOLD
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
            broken=reasons,
        )

    def merge(self, other: ImageModel) -> ImageModel:
        """Learn all that ``other`` has learned, without its images; see :meth:`dsal.DSALClassifier.merge`.

        Raises:
            InputError: the models have different backbones or expansions.
        """
        self._check_taught()
        other._check_taught()
        if self.backbone.fingerprint() != other.backbone.fingerprint():
            raise InputError(
                f"only models with the same backbone merge: {self.backbone.card.architecture} and "
                f"{other.backbone.card.architecture} differ in architecture, weights or preprocessing"
            )
        self.classifier.merge(other.classifier)
        classes = self.classifier.classes_
        columns = columns_of(other.classifier.classes_, classes)
        self.statistics = self.statistics.merged(other.statistics, columns, len(classes))
        self.usual = self.usual.merged(other.usual)
        self._add_left_out(other.left_out)
        return self

    def forget(
        self,
        source: StrPath | ImageFiles,
        *,
        keep_compensation: bool = False,
        broken: str = "stop",
        progress: Progress | None = None,
    ) -> int:
        """Unlearn images that were learned, exactly in the main stream; see :meth:`dsal.DSALClassifier.forget`.

        What is usual in known images (:class:`~dsal.images.novelty.Usual`) stays as it was learned.

        Returns:
            How many images were unlearned.
        """
        self._check_taught()
        x, y, _ = self._read(source, broken, progress)
        before = self.classes
        columns = columns_of(y, self.classifier.classes_)
        self.classifier.forget(x, y, keep_compensation=keep_compensation)
        kept = columns_of(self.classifier.classes_, np.array(before))
        self.statistics = self.statistics.plus(x, columns, len(before), sign=-1.0).kept(kept)
        return len(y)

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

    def _read(
        self, source: StrPath | ImageFiles, broken: str, progress: Progress | None
    ) -> tuple[NDArray[np.float32], NDArray[Any], tuple[str, ...]]:
        """Features (n, d) and labels (n,) of what could be read, and what could not."""
        labelled = source if isinstance(source, ImageFiles) else read_files(Path(source))
        found = read_features(self.backbone, labelled.paths, broken=broken, progress=progress)
        return found.x, np.array(labelled.labels)[found.rows], found.broken

    def _main_stream(self) -> DSALClassifier:
        """The classifier's main stream alone, whose leave-one-out logits are exact; shares what was learned."""
        main = copy(self.classifier)
        main.compensation = 0.0
        return main

    def _novelty(self, x: NDArray[np.float32]) -> NDArray[np.float64]:
        return self.usual.novelty(self._main_stream().logits(x).max(1), self.statistics.distances(x))
