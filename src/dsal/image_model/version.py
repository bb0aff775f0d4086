"""A learned state of an image model as arrays and metadata, which undo and redo restore bit for bit.

A version holds the learning state of the classifier (a triangle for each stream, 0.13 GB at d_B = 4096) and the sums
for novelty. Backbone and expansion never change and are not copied; arrays that did not change between two versions are
kept once. It contains no image and no feature of a single image.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import asdict, dataclass, replace
from hashlib import sha256
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from dsal.classifier import DSALClassifier, classifier_files
from dsal.image_model.learned_state import LearnedState
from dsal.image_model.novelty import ClassStatistics
from dsal.image_model.novelty_reference import NoveltyReference
from dsal.image_model.seen import Seen

MAX_BYTES = 400_000_000  # of all versions of a model: eleven lessons at d_B = 2048, two at 4096
MAX_VERSIONS = 50
_EXPANSION = "expansion."


@dataclass(frozen=True, eq=False)
class Version:
    """A state, as arrays and metadata.

    Attributes:
        id: identifies the state: see :func:`next_id`.
        change: description of the change that undo or redo of this version is about.
        arrays: arrays of classifier and novelty; empty if nothing had been learned.
        meta: metadata of the classifier; empty if nothing had been learned.
        left_out: see :class:`~dsal.image_model.model.ImageModel`.
    """

    id: str
    change: str
    arrays: dict[str, NDArray[Any]]
    meta: dict[str, Any]
    left_out: dict[str, dict[str, int]]

    def document(self) -> dict[str, Any]:
        """Return everything except the arrays, as JSON-compatible values."""
        return {"id": self.id, "change": self.change, "meta": self.meta, "left_out": self.left_out}

    @classmethod
    def of(cls, state: LearnedState, id: str, change: str, expansion: bool = False) -> Version:
        """Copy a state, so that later changes cannot affect it; with the expansion, if no other state will have it."""
        if not state.taught:
            return cls(id, change, {}, {}, {})
        parts, meta = classifier_files.pack(state.classifier, learning=state.classifier.learns_on)
        arrays = {
            f"classifier.{name}": _copied(value)
            for name, value in parts.items()
            if expansion or not name.startswith(_EXPANSION)
        }
        return cls(id, change, arrays | state_arrays(state), meta, deepcopy(state.left_out))

    def sharing(self, others: Sequence[Version]) -> Version:
        """Return this version with the first of the others' arrays in place of those that are equal."""
        arrays = self.arrays
        for other in others[:1]:
            arrays = {
                name: other.arrays[name] if name in other.arrays and equal(array, other.arrays[name]) else array
                for name, array in arrays.items()
            }
        return replace(self, arrays=arrays)

    def restored(self, state: LearnedState) -> LearnedState:
        """Return this version as a state; ``state`` is the present one of the same model."""
        classifier, features = state.classifier, state.statistics.sums.shape[1]
        if not self.meta:
            unfitted = DSALClassifier(**classifier.get_params(deep=False))
            unfitted.team = classifier.team
            return LearnedState(unfitted, features)
        current = classifier_files.pack(classifier, learning=False)[0] if state.taught else {}
        parts = {name: _copied(value) for name, value in current.items() if name.startswith(_EXPANSION)}
        parts |= {name: _copied(value) for name, value in part(self.arrays, "classifier").items()}
        restored = LearnedState(DSALClassifier(), features)
        restored.classifier.team = classifier.team
        classifier_files.unpack(restored.classifier, parts, self.meta, "the earlier version", classifier.device)
        restored.left_out = deepcopy(self.left_out)
        set_arrays(restored, self.arrays)
        return restored


def next_id(before: str, change: str, state: LearnedState) -> str:
    """Return the id of a state: a hash of the id before, the change and the learned images.

    Equal ids mean equal states; undo and redo return to the ids that their states had.
    """
    digest = sha256(f"{before}\n{change}\n{state.classes}\n".encode())
    for array in state.seen.arrays(state.classes).values():
        digest.update(array.tobytes())
    return digest.hexdigest()[:16]


def bounded(versions: Sequence[Version], max_bytes: int) -> tuple[Version, ...]:
    """Return the first versions that fit into ``max_bytes`` together, but at least one."""
    fitting = list(versions[:MAX_VERSIONS])
    while len(fitting) > 1 and total_bytes(fitting) > max_bytes:
        fitting.pop()
    return tuple(fitting)


def total_bytes(versions: Sequence[Version]) -> int:
    """Return the size of versions in memory and on disk; arrays that they share count once."""
    return sum({id(a): a.nbytes for version in versions for a in version.arrays.values()}.values())


def equal(one: NDArray[Any], other: NDArray[Any]) -> bool:
    """Return whether two arrays are the same, bit for bit."""
    return one is other or (one.dtype == other.dtype and one.shape == other.shape and np.array_equal(one, other))


def state_arrays(state: LearnedState) -> dict[str, NDArray[Any]]:
    """Return the arrays of a state besides those of the classifier."""
    return {
        **{f"novelty.{name}": value for name, value in asdict(state.statistics).items()},
        **{f"usual.{name}": value for name, value in state.reference.arrays().items()},
        **{f"seen.{name}": value for name, value in state.seen.arrays(state.classes).items()},
    }


def set_arrays(state: LearnedState, arrays: dict[str, NDArray[Any]]) -> None:
    """Set what :func:`state_arrays` returned; the state must already have its classifier."""
    state.statistics = ClassStatistics(**part(arrays, "novelty"))
    state.reference = NoveltyReference.from_arrays(**part(arrays, "usual"))
    state.seen = Seen.from_arrays(part(arrays, "seen"), state.classes)


def part(arrays: dict[str, NDArray[Any]], name: str) -> dict[str, NDArray[Any]]:
    """Return the arrays whose names start with ``name.``, without that prefix."""
    prefix = f"{name}."
    return {key.removeprefix(prefix): value for key, value in arrays.items() if key.startswith(prefix)}


def _copied(value: NDArray[Any] | Tensor) -> NDArray[Any]:
    return value.copy() if isinstance(value, np.ndarray) else value.detach().cpu().numpy().copy()
