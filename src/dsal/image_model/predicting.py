"""Predictions of an image model, and their evaluation."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from dsal.base.progress import OnProgress
from dsal.classifier.labels import columns_of
from dsal.data.images.decode import ImageSource
from dsal.errors import InputError
from dsal.image_model.answering import Answerer, check_question
from dsal.image_model.answers import THRESHOLD, Evaluation, Prediction, Predictions
from dsal.image_model.batches import FeatureBatch
from dsal.image_model.model_state import ModelState
from dsal.image_model.reading import feature_batches, read_features
from dsal.image_model.sources import Images, Labelled, content_keys, labelled_images, unlabelled_images
from dsal.image_model.suggesting import most_useful


class Predicting(ModelState):
    """Methods of an image model that predict and change nothing."""

    def predict(
        self,
        images: Images,
        *,
        top_k: int = 5,
        threshold: float = THRESHOLD,
        broken: str = "stop",
        progress: OnProgress | None = None,
    ) -> Predictions:
        """Predict the labels of images, with probabilities and novelty.

        Args:
            images: a file, a folder (all images below it), bytes of an image file, a Pillow image, a uint8 array
                (h, w, 3), or several of them.
            top_k: how many of the most likely classes to return per image.
            threshold: novelty above which an image is flagged as novel.
            broken: ``"stop"`` or ``"skip"``: what to do with images that cannot be read.
            progress: called with (images read, total images).
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
        """Yield predictions as soon as they are ready; for a skipped image, yield the reason. See :meth:`predict`."""
        self._check_taught()
        check_question(top_k, threshold)
        batches = feature_batches(self.backbone, images, broken=broken)
        return self._answerer().stream(batches, images, top_k=top_k, threshold=threshold)

    def evaluate(self, source: Labelled, *, broken: str = "stop", progress: OnProgress | None = None) -> Evaluation:
        """Compare predictions with labels; images of classes that were never taught should be flagged as novel."""
        self._check_taught()
        given = labelled_images(source)
        found = read_features(self.backbone, given.images, broken=broken, progress=progress, team=self.team)
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

    def suggest(
        self, images: Images, count: int = 20, *, broken: str = "stop", progress: OnProgress | None = None
    ) -> Predictions:
        """Suggest unlabelled images worth labelling, the most useful first, with their predictions.

        They are typical of what the model is unsure of, and diverse: see
        :func:`~dsal.image_model.suggesting.most_useful`. Images that were learned before and duplicates are left out.

        Args:
            images: as in :meth:`predict`.
            count: how many to suggest.
            broken: ``"stop"`` or ``"skip"``: what to do with images that cannot be read.
            progress: called with (images read, total images).
        """
        self._check_taught()
        if count < 1:
            raise InputError(f"count must be at least 1, got {count}")
        given = unlabelled_images(images)
        known: dict[bytes | int, int] = {}
        for row, key in enumerate(content_keys(given)):
            if not self.seen.labels(key):
                known.setdefault(row if key is None else key, row)
        new = [given[row] for row in known.values()]
        if not new:
            raise InputError(f"all {len(given)} images were learned before: there is nothing to suggest")
        found = read_features(self.backbone, new, broken=broken, progress=progress, team=self.team)
        answerer = self._answerer()
        chosen = most_useful(found.x, answerer.scores(found.x)[0], count)
        batch = FeatureBatch(found.rows[chosen].tolist(), found.x[chosen], [])
        stream = answerer.stream([batch], new, top_k=5, threshold=THRESHOLD)
        answers = Predictions(answer for answer in stream if not isinstance(answer, str))
        answers.broken = found.broken
        return answers

    def _answerer(self) -> Answerer:
        main = self._main_stream()

        def logits(x: NDArray[np.float32]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
            return main.logits(x), self.classifier.logits(x)

        temperature = self.classifier._calibration.temperature
        return Answerer(self.classes, logits, temperature, self.statistics, self.reference)
