"""Snapshots of models: what predictions need, unaffected by later lessons."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dsal.analytic.head import AnalyticHead
from dsal.image_model import ImageModel
from dsal.image_model.novelty import NoveltyReference, RelativeDistance
from dsal.serve.engine.extractor import Extractor
from dsal.serve.engine.products import Product, product_with

_MAX_PAIRS = 10


@dataclass(frozen=True, eq=False)
class Snapshot:
    """A model at one moment, in float32.

    Attributes:
        extractor: maps images to features; shared by all models with the same backbone.
        head: maps features to logits.
        temperature: of the probabilities.
        expand: the product with the projection of the head.
        distance: distance of features from the classes, used to rate novelty.
        measure: the product with the quadratic form of the distance.
        reference: scores of images of known classes, used to rate novelty.
        facts: the answer of ``info``, as JSON-compatible values.
        notes: the notes of the model.
    """

    extractor: Extractor
    head: AnalyticHead
    temperature: float
    expand: Product
    distance: RelativeDistance
    measure: Product
    reference: NoveltyReference
    facts: dict[str, Any]
    notes: dict[str, Any]

    @classmethod
    def of(cls, model: ImageModel, extractor: Extractor) -> Snapshot:
        """Return a snapshot of a model, sharing only parts that learning replaces and never modifies."""
        head, distance = model.classifier.to_torch(torch.float32), model.statistics.relative_distance.single()
        return cls(
            extractor=extractor,
            head=head,
            expand=product_with(head.expansion.projection.numpy()),
            temperature=model.classifier._calibration.temperature,
            distance=distance,
            measure=product_with(np.asarray(distance.form, np.float32)),
            reference=model.reference,
            facts=facts(model),
            notes=dict(model.notes),
        )

    @property
    def classes(self) -> list[str]:
        """Labels in the order in which they were learned."""
        return list(self.facts["classes"])

    def scores(self, x: NDArray[np.float32]) -> tuple[NDArray[np.float32], NDArray[np.float32], NDArray[np.float32]]:
        """Return logits (n, c), probabilities (n, c) and novelty (n,) of features; NaN where novelty is unknown."""
        head = self.head
        with torch.no_grad():
            z = head.expansion(torch.from_numpy(x), self._expanded)
            main = head.main_activation(z) @ head.main
            logits = main
            if head.comp is not None and head.compensation:
                logits = main + head.compensation * (head.activation(z) @ head.comp)
            probabilities = torch.softmax(logits / self.temperature, 1)
        novelty = self.reference.novelty(main.max(1).values.double().numpy(), self.distance(x, self.measure))
        return logits.numpy(), probabilities.numpy(), novelty.astype(np.float32)

    def _expanded(self, rows: Tensor, matrix: Tensor) -> Tensor:
        return torch.from_numpy(self.expand(rows.numpy(), matrix.numpy()))


def facts(model: ImageModel) -> dict[str, Any]:
    """Return classes, counts, sizes and leave-one-out results of a model."""
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
            for images, label, answer in sorted(confused, reverse=True)[:_MAX_PAIRS]
        ],
        "undo": [version.change for version in model.history],
    }
