"""What readers see of a model: a copy of all that answers need, which no lesson changes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import softmax
from torch import Tensor

from dsal.head import AnalyticHead
from dsal.images import ImageModel
from dsal.images.novelty import ClassStatistics, Usual
from dsal.serve.extractor import Extractor

_MOST_PAIRS = 10


@dataclass(frozen=True, eq=False)
class Snapshot:
    """A model at one moment, in float32.

    Attributes:
        extractor: images to features; shared by all models that have the same backbone.
        head: features to logits.
        temperature: of the probabilities.
        statistics: sums over the features of each class.
        usual: what images of known classes look like.
        facts: what ``info`` tells, as JSON can hold it.
        notes: what was kept with the model.
    """

    extractor: Extractor
    head: AnalyticHead
    temperature: float
    statistics: ClassStatistics
    usual: Usual
    facts: dict[str, Any]
    notes: dict[str, Any]

    @classmethod
    def of(cls, model: ImageModel, extractor: Extractor) -> Snapshot:
        """A snapshot that shares with the model only what learning replaces and never changes."""
        snapshot = cls(
            extractor=extractor,
            head=model.classifier.to_torch(torch.float32),
            temperature=model.classifier._calibration.temperature,
            statistics=model.statistics,
            usual=model.usual,
            facts=facts(model),
            notes=dict(model.notes),
        )
        snapshot.statistics.distances(np.zeros((1, model.statistics.sums.shape[1])))  # factorise now, not for a reader
        return snapshot

    @property
    def classes(self) -> list[str]:
        """Labels in order of arrival."""
        return list(self.facts["classes"])

    def scores(self, images: Tensor) -> tuple[NDArray[np.float32], NDArray[np.float32], NDArray[np.float32]]:
        """Logits (n, c), probabilities (n, c) and novelty (n,) of uint8 images; NaN where novelty is unknown."""
        (x,) = self.extractor.features(images)
        head = self.head
        with torch.no_grad():
            z = head.expansion(torch.from_numpy(x))
            main = head.main_activation(z) @ head.main
            logits = main
            if head.comp is not None and head.compensation:
                logits = main + head.compensation * (head.activation(z) @ head.comp)
        novelty = self.usual.novelty(main.max(1).values.double().numpy(), self.statistics.distances(x))
        scores = logits.numpy()
        return scores, softmax(scores / np.float32(self.temperature), axis=1), novelty.astype(np.float32)


def facts(model: ImageModel) -> dict[str, Any]:
    """Classes, counts, sizes, and what leave-one-out answers tell about them."""
    head, card = model.classifier, model.backbone.card
    confused = [
        (images, label, answer)
        for label, answers in model.left_out.items()
        for answer, images in answers.items()
        if answer != label
    ]
    return {
        "classes": model.counts,
        "images": sum(model.counts.values()),
        "phases": head.n_phases_,
        "backbone": card.architecture,
        "channels": card.in_channels,
        "image_size": card.size,
        "expansion_size": head.expansion_size,
        "learns_on": model.learns_on,
        "left_out": [
            {"label": label, "images": sum(answers.values()), "right": answers.get(label, 0)}
            for label, answers in model.left_out.items()
        ],
        "confused": [
            {"label": label, "taken_for": answer, "images": images}
            for images, label, answer in sorted(confused, reverse=True)[:_MOST_PAIRS]
        ],
        "undo": [version.change for version in model.history],
    }
