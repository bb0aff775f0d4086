"""Merge image models that were taught in different places, by adding their sums."""

from __future__ import annotations

from typing import TypeVar

import numpy as np

from dsal.classifier.calibration import Calibration
from dsal.classifier.labels import columns_of
from dsal.errors import InputError
from dsal.image_model.left_out_counts import added
from dsal.image_model.model_state import ModelState
from dsal.image_model.novelty import NoveltyReference

_SAMPLED = 20  # rows sampled per class to estimate the novelty reference of a merged model
Model = TypeVar("Model", bound="Merging")


class Merging(ModelState):
    """Methods of an image model that learn from another model."""

    def merge(self: Model, other: Model, *, again: bool = False) -> Model:
        """Add what ``other`` has learned; its images are not needed. See :meth:`dsal.DSALClassifier.merge`.

        The temperature of the probabilities and the novelty reference are estimated from the merged sums, because each
        model measured only its own classes.

        Args:
            other: the other model; it does not change.
            again: whether images that both models have learned may count twice.

        Raises:
            InputError: the models have different backbones or expansions, or images in common.
        """
        self._check_taught()
        other._check_taught()
        if self.backbone.fingerprint() != other.backbone.fingerprint():
            raise InputError(
                f"only models with the same backbone can be merged: {self.backbone.card.architecture} and "
                f"{other.backbone.card.architecture} differ in architecture, weights or preprocessing"
            )
        shared = self.seen.shared(other.seen)
        if shared and not again:
            raise InputError(
                f"both models have learned the same {shared} images, which would count twice: forget them in one of "
                "the models, or pass again=True (--again)"
            )
        with self._change(f"merged {len(other.classes)} classes of another model"):
            self.classifier.merge(other.classifier)
            classes = self.classifier.classes_
            columns = columns_of(other.classifier.classes_, classes)
            self.statistics = self.statistics.merged(other.statistics, columns, len(classes))
            self.seen = self.seen.merged(other.seen)
            self.left_out = added(self.left_out, other.left_out)
            self._estimate()
        return self

    def _estimate(self) -> None:
        """Estimate the calibration and the novelty reference of a merged model from its sums alone.

        Each model measured these only for its own classes and its own logits. Features sampled from the class means and
        the covariance take the place of images.
        """
        x, columns = self.statistics.sample(_SAMPLED)
        images = float(self.statistics.counts.sum())
        main = self._main_stream().logits(x).max(1)
        self.reference = NoveltyReference.estimated(main, self.statistics.distances(x), images)
        logits = self.classifier.logits(x)
        self.classifier._calibration = Calibration().plus(logits, columns, np.ones(len(x)), images)
