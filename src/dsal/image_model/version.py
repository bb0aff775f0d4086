"""The learned state of an image model before a change, which undo restores bit for bit.

A version holds the learning state of the classifier (a triangle for each stream, 0.13 GB at d_B = 4096) and the sums
for novelty. Backbone and expansion never change and are not copied. It contains no image and no feature of a single
image.
"""

from __future__ import annotations

from copy import deepcopy
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from dsal.classifier import DSALClassifier, classifier_files
from dsal.image_model.learned_state import LearnedState
from dsal.image_model.novelty import ClassStatistics, NoveltyReference
from dsal.image_model.seen import Seen

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
    def of(cls, state: LearnedState, change: str) -> Version:
        """Copy the current state, so that the change cannot affect it."""
        if not state.taught:
            return cls(change, {}, {}, {})
        parts, meta = classifier_files.pack(state.classifier, learning=state.classifier.learns_on)
        arrays = {
            f"classifier.{name}": _copied(value) for name, value in parts.items() if not name.startswith(_EXPANSION)
        }
        return cls(change, arrays | state_arrays(state), meta, deepcopy(state.left_out))

    def restored(self, state: LearnedState) -> LearnedState:
        """Return this version as a state; ``state`` is a later one of the same model."""
        classifier, features = state.classifier, state.statistics.sums.shape[1]
        if not self.meta:
            unfitted = DSALClassifier(**classifier.get_params(deep=False))
            unfitted.team = classifier.team
            return LearnedState(unfitted, features)
        current = classifier_files.pack(classifier, learning=False)[0]
        parts = {name: _copied(value) for name, value in current.items() if name.startswith(_EXPANSION)}
        parts |= part(self.arrays, "classifier")
        restored = LearnedState(DSALClassifier(), features)
        restored.classifier.team = classifier.team
        classifier_files.unpack(restored.classifier, parts, self.meta, "the earlier version", classifier.device)
        restored.left_out = deepcopy(self.left_out)
        set_arrays(restored, self.arrays)
        return restored


def state_arrays(state: LearnedState) -> dict[str, NDArray[Any]]:
    """Return the arrays of a state besides those of the classifier."""
    return {
        **{f"novelty.{name}": value for name, value in asdict(state.statistics).items()},
        "usual.counts": state.reference.counts,
        **{f"seen.{name}": value for name, value in state.seen.arrays(state.classes).items()},
    }


def set_arrays(state: LearnedState, arrays: dict[str, NDArray[Any]]) -> None:
    """Set what :func:`state_arrays` returned; the state must already have its classifier."""
    state.statistics = ClassStatistics(**part(arrays, "novelty"))
    state.reference = NoveltyReference(**part(arrays, "usual"))
    state.seen = Seen.from_arrays(part(arrays, "seen"), state.classes)


def part(arrays: dict[str, NDArray[Any]], name: str) -> dict[str, NDArray[Any]]:
    """Return the arrays whose names start with ``name.``, without that prefix."""
    prefix = f"{name}."
    return {key.removeprefix(prefix): value for key, value in arrays.items() if key.startswith(prefix)}


def _copied(value: NDArray[Any] | Tensor) -> NDArray[Any]:
    return value.copy() if isinstance(value, np.ndarray) else value.detach().cpu().numpy().copy()
