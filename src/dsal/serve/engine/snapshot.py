"""Snapshots of models: what predictions need, unaffected by later lessons."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from dsal.image_model import ImageModel
from dsal.image_model.predictor import Predictor
from dsal.serve.engine.extractor import Extractor

_MAX_PAIRS = 10


@dataclass(frozen=True, eq=False)
class Snapshot:
    """A model at one moment.

    Attributes:
        extractor: maps images to features; shared by all models with the same backbone.
        predictor: maps features to predictions.
        facts: the answer of ``info``, as JSON-compatible values.
        notes: the notes of the model.
    """

    extractor: Extractor
    predictor: Predictor
    facts: dict[str, Any]
    notes: dict[str, Any]

    @classmethod
    def of(cls, model: ImageModel, extractor: Extractor) -> Snapshot:
        """Return a snapshot of a model, sharing only parts that learning replaces and never modifies."""
        return cls(extractor, model.predictor().predictor, facts(model), dict(model.notes))

    @property
    def classes(self) -> list[str]:
        """Labels in the order in which they were learned."""
        return list(self.predictor.classes)


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
        "redo": [version.change for version in model.undone],
        "history_bytes": model.history_bytes,
    }
