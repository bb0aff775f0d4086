"""``ImageModel``: a classifier for images that keeps learning without forgetting and detects unknown classes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from dsal.backbones.backbone import Backbone
from dsal.backbones.hub import DEFAULT, as_backbone
from dsal.base.progress import OnProgress
from dsal.base.version import __version__
from dsal.classifier import DSALClassifier
from dsal.classifier.labels import columns_of
from dsal.distributed import ALONE, Team
from dsal.files.store import StrPath
from dsal.image_model import model_files
from dsal.image_model.answers import Lesson
from dsal.image_model.correcting import Correcting
from dsal.image_model.left_out_counts import added, counted
from dsal.image_model.merging import Merging
from dsal.image_model.model_state import image_name, listed
from dsal.image_model.novelty import ClassStatistics, NoveltyReference
from dsal.image_model.predicting import Predicting
from dsal.image_model.reading import read_features
from dsal.image_model.seen import Seen
from dsal.image_model.sources import Labelled, LabelledImages, content_keys, labelled_images

DEFAULTS: dict[str, Any] = {"gamma": 100.0}
"""Default options of the classifier, chosen by benchmarks/few_images.py: see docs/photo-results.md."""

_MAX_LEFT_OUT = 2000  # rows judged leave-one-out; enough to know the accuracy to one per cent


class ImageModel(Predicting, Correcting, Merging):
    """A frozen backbone, a :class:`~dsal.DSALClassifier` on its features, and novelty statistics.

    If a call raises, the model is unchanged.

    Args:
        backbone: a name (see ``dsal.backbones.hub``), a :class:`~dsal.backbones.Backbone`, or any ``nn.Module``.
        classifier: an unfitted classifier; by default one with :data:`DEFAULTS`.
        device: where the backbone runs.
        team: the processes that learn together.

    Attributes:
        statistics: sums over the features of each class.
        reference: scores of images of known classes, used to rate novelty.
        left_out: number of images by true class (first key) and predicted class (second key); each image is predicted
            by the main stream at the time of its lesson, as if it had not been learned. Not counted while there is
            only one class.
        seen: hashes of the learned images, with their labels.
        history: the states before the last changes, newest first, for :meth:`undo`.
        notes: anything that a program wants to store with the model, as JSON.
        version: version of dsal that created the model or wrote its file.
    """

    def __init__(
        self,
        backbone: str | Backbone | nn.Module = DEFAULT,
        classifier: DSALClassifier | None = None,
        device: str | torch.device = "cpu",
        *,
        team: Team = ALONE,
    ) -> None:
        self.backbone = as_backbone(backbone).to(device)
        self.classifier = DSALClassifier(**DEFAULTS) if classifier is None else classifier
        self.classifier.team = self.team = team
        self.statistics = ClassStatistics.nothing(self.backbone.widths["stages"])
        self.reference = NoveltyReference.nothing()
        self.left_out = {}
        self.seen = Seen()
        self.history = ()
        self.notes = {}
        self.version = __version__

    def learn(
        self, source: Labelled, *, again: bool = False, broken: str = "stop", progress: OnProgress | None = None
    ) -> Lesson:
        """Learn a phase: new classes, more images of known ones, or both.

        Images that were learned before are recognised by their content and skipped, so you can pass a growing folder
        again and again.

        Args:
            source: ``FOLDER/<class>/*``, a zip of it, a CSV of paths and labels, or a pair (images, labels). Images
                are paths, bytes of image files, Pillow images or uint8 arrays.
            again: whether to learn images again that were learned before; they then count twice.
            broken: ``"stop"`` or ``"skip"``: what to do with images that cannot be read.
            progress: called with (images read, total images).
        """
        given = labelled_images(source)
        keys = self.team.broadcast_result(lambda: content_keys(given.images))
        rows, moved = (list(range(len(keys))), ()) if again else self._unseen(given, keys)
        repeated = len(keys) - len(rows) - len(moved)
        if not rows:
            return Lesson(0, (), (), (), float("nan"), repeated, moved)
        new = given.take(rows)
        found = read_features(self.backbone, new.images, broken=broken, progress=progress, team=self.team)
        labels, found_keys = np.array(new.labels)[found.rows], [keys[rows[row]] for row in found.rows]
        lesson = self.learn_features(found.x, labels, found_keys)
        return replace(lesson, broken=found.broken, repeated=repeated, moved=moved)

    def learn_features(
        self, x: NDArray[np.float32], y: NDArray[Any], keys: Sequence[bytes | None] | None = None
    ) -> Lesson:
        """Learn a phase of features (n, d) from ``backbone.extract``, with labels (n,).

        ``keys`` identify the images (:func:`~dsal.image_model.sources.content_keys`); without them, repeated images are
        not recognised.
        """
        known = self.classes
        new = sorted(set(y.tolist()) - set(known))
        columns = columns_of(y, np.array([*known, *new]))
        with self._change(f"learned {len(y)} images of {listed(sorted(set(y.tolist())))}"):
            statistics = self.statistics.plus(x, columns, len(known) + len(new))
            self.classifier.partial_fit(x, y)
            self.statistics = statistics
            picked = np.random.default_rng(0).permutation(len(y))[:_MAX_LEFT_OUT]
            logits = self._main_stream().loo_logits(x[picked], y[picked])
            self.reference = self.reference.plus(logits.max(1), statistics.loo_distances(x[picked], columns[picked]))
            answers = logits.argmax(1)
            self.left_out = added(self.left_out, counted(self.classes, columns[picked], answers))
            self.seen = self.seen.plus([None] * len(y) if keys is None else keys, y.tolist())
        judged = (statistics.counts > 1.5)[columns[picked]] & (len(self.classes) > 1)
        return Lesson(
            images=len(y),
            new_classes=tuple(new),
            known_classes=tuple(sorted(set(y.tolist()) & set(known))),
            broken=(),
            loo_accuracy=float((answers == columns[picked])[judged].mean()) if judged.any() else float("nan"),
        )

    def save(self, path: StrPath, learning: bool = True) -> None:
        """Write the model to one file, atomically; with ``learning=False``, omit the state needed to learn more."""
        self._check_taught()
        model_files.save(self, path, learning)

    @classmethod
    def load(
        cls,
        path: StrPath,
        backbone: Backbone | nn.Module | None = None,
        device: str | torch.device = "cpu",
        *,
        team: Team = ALONE,
    ) -> ImageModel:
        """Load a model that :meth:`save` wrote.

        Args:
            path: the file.
            backbone: the backbone it was made with; needed only if that was your own ``nn.Module``.
            device: where the backbone runs.
            team: the processes that learn together.
        """
        return model_files.load(path, backbone, device, team)

    def _unseen(
        self, given: LabelledImages, keys: Sequence[bytes | None]
    ) -> tuple[list[int], tuple[tuple[str, str, str], ...]]:
        """Return the rows with new content, each once, and the images that were learned under another label."""
        rows, moved = [], []
        lesson = set[tuple[bytes, str]]()
        for row, (key, label) in enumerate(zip(keys, given.labels, strict=True)):
            learned = self.seen.labels(key)
            if learned and label not in learned:
                moved.append((image_name(given.images[row]), label, learned[0]))
            elif not learned and (key is None or (key, label) not in lesson):
                rows.append(row)
            if key is not None:
                lesson.add((key, label))
        return rows, tuple(moved)
