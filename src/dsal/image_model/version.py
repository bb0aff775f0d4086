"""The state of an image model before a change, which undo restores bit for bit.

A version holds the learning state of the classifier (a triangle for each stream, 0.13 GB at d_B = 4096) and the sums
for novelty. Backbone and expansion never change and are not copied. It contains no image and no feature of a single
image.
"""

from __future__ import annotations

from copy import deepcopy
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from dsal.classifier import DSALClassifier, classifier_files
from dsal.image_model.novelty import ClassStatistics, NoveltyReference
from dsal.image_model.seen import Seen

if TYPE_CHECKING:
    from dsal.image_model.model_state import ModelState

_EXPANSION = "expansion."


@dataclass(frozen=True, eq=False)
class Version:
    """The state before a change, as arrays and metadata.

    Attributes:
        change: description of the change.
        arrays: arrays of classifier and novelty; empty if nothing had been learned.
        meta: metadata of the classifier; empty if nothing had been learned.
        left_out: see :class:`~dsal.image_model.model.ImageModel`.
    """

    change: str
    arrays: dict[str, NDArray[Any]]
    meta: dict[str, Any]
    left_out: dict[str, dict[str, int]]

    def document(self) -> dict[str, Any]:
        """Return everything except the arrays, as JSON-compatible values."""
        return {"change": self.change, "meta": self.meta, "left_out": self.left_out}

    @classmethod
    def of(cls, model: ModelState, change: str) -> Version:
        """Copy the current state of the model, so that the change cannot affect it."""
        if not model.classes:
            return cls(change, {}, {}, {})
        parts, meta = classifier_files.pack(model.classifier, learning=model.learns_on)
        arrays = {
            f"classifier.{name}": _copied(value) for name, value in parts.items() if not name.startswith(_EXPANSION)
        }
        return cls(change, arrays | model_arrays(model), meta, deepcopy(model.left_out))

    def restore(self, model: ModelState) -> None:
        """Restore this state in the model."""
        model.left_out = deepcopy(self.left_out)
        if not self.meta:
            params = model.classifier.get_params(deep=False)
            model.classifier = DSALClassifier(**params)
            model.classifier.team = model.team
            model.statistics = ClassStatistics.nothing(model.backbone.widths["stages"])
            model.reference, model.seen = NoveltyReference.nothing(), Seen()
            return
        current = classifier_files.pack(model.classifier, learning=False)[0]
        parts = {name: _copied(value) for name, value in current.items() if name.startswith(_EXPANSION)}
        parts |= part(self.arrays, "classifier")
        classifier = DSALClassifier()
        classifier.team = model.team
        classifier_files.unpack(classifier, parts, self.meta, "the earlier version", model.classifier.device)
        model.classifier = classifier
        set_arrays(model, self.arrays)


def model_arrays(model: ModelState) -> dict[str, NDArray[Any]]:
    """Return the arrays of a model besides those of backbone and classifier."""
    return {
        **{f"novelty.{name}": value for name, value in asdict(model.statistics).items()},
        "usual.counts": model.reference.counts,
        **{f"seen.{name}": value for name, value in model.seen.arrays(model.classes).items()},
    }


def set_arrays(model: ModelState, arrays: dict[str, NDArray[Any]]) -> None:
    """Set what :func:`model_arrays` returned; the model must already have its classifier."""
    model.statistics = ClassStatistics(**part(arrays, "novelty"))
    model.reference = NoveltyReference(**part(arrays, "usual"))
    model.seen = Seen.from_arrays(part(arrays, "seen"), model.classes)


def part(arrays: dict[str, NDArray[Any]], name: str) -> dict[str, NDArray[Any]]:
    """Return the arrays whose names start with ``name.``, without that prefix."""
    prefix = f"{name}."
    return {key.removeprefix(prefix): value for key, value in arrays.items() if key.startswith(prefix)}


def _copied(value: NDArray[Any] | Tensor) -> NDArray[Any]:
    return value.copy() if isinstance(value, np.ndarray) else value.detach().cpu().numpy().copy()
