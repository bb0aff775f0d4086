"""Versions of an image model, and what can be done with them without PyTorch: rename, drop, undo and redo.

A version holds the learning state of the classifier (a triangle for each stream, 0.13 GB at d_B = 4096) and the sums
for novelty, as arrays and metadata. Backbone and expansion never change and are not copied; arrays that did not change
between two versions are kept once. It contains no image and no feature of a single image.

The arrays are in memory, or in an open file: then only those that a change touches are read.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from hashlib import sha256
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dsal.errors import InputError, StaleVersionError, UnknownNameError
from dsal.files.tensors import StoredArray, under
from dsal.image_model.outcomes import LeftOut, renamed, restricted
from dsal.image_model.seen import Seen
from dsal.image_model.sources import check_class_name

if TYPE_CHECKING:
    from dsal.image_model.novelty import ClassStatistics
    from dsal.image_model.novelty_reference import NoveltyReference

MAX_BYTES = 400_000_000  # of all versions of a model: eleven lessons at d_B = 2048, two at 4096
MAX_VERSIONS = 50
_COMPARED = 2**20  # bytes of arrays in a file that are read to see whether they are equal
EXPANSION = "classifier.expansion."

AnyArray: TypeAlias = "NDArray[Any] | StoredArray"


@dataclass(frozen=True, eq=False)
class Version:
    """A learned state, as arrays and metadata.

    Attributes:
        id: identifies the state: see :func:`next_id`.
        change: description of the change that undo or redo of this version is about.
        arrays: arrays of classifier and novelty; empty if nothing had been learned.
        meta: metadata of the classifier; empty if nothing had been learned.
        left_out: see :class:`~dsal.image_model.model.ImageModel`.
    """

    id: str
    change: str
    arrays: dict[str, AnyArray]
    meta: dict[str, Any]
    left_out: LeftOut

    @property
    def classes(self) -> tuple[str, ...]:
        """Labels in the order in which they were learned."""
        return tuple(self.meta.get("classes", ()))

    @property
    def counts(self) -> dict[str, int]:
        """Number of learned images of each class."""
        counts = in_memory(self.arrays["novelty.counts"]) if self.meta else np.zeros(0)
        return dict(zip(self.classes, counts.round().astype(int).tolist(), strict=True))

    def document(self) -> dict[str, Any]:
        """Return everything except the arrays, as JSON-compatible values."""
        return {"id": self.id, "change": self.change, "meta": self.meta, "left_out": self.left_out}

    def part(self, name: str) -> dict[str, NDArray[Any]]:
        """Return the arrays whose names start with ``name``, without that and the dot, in memory."""
        return {key: in_memory(array) for key, array in under(self.arrays, name).items()}

    def sharing(self, other: Version) -> Version:
        """Return this version with the other's arrays in place of those that are equal."""
        arrays = {
            name: other.arrays[name] if name in other.arrays and equal(array, other.arrays[name]) else array
            for name, array in self.arrays.items()
        }
        return replace(self, arrays=arrays)

    def renamed(self, old: str, new: str) -> Version:
        """Return the version that follows when a class is renamed."""
        self._check_known(old)
        if check_class_name(new) in self.classes:
            raise InputError(f"{new!r} is a class already: choose another name")
        meta = {**self.meta, "classes": [new if label == old else label for label in self.classes]}
        return self._followed_by(f"renamed {old} to {new}", self.arrays, meta, renamed(self.left_out, old, new))

    def dropped(self, label: str) -> Version:
        """Return the version that follows when a class is removed from the predictions."""
        from dsal.image_model.novelty import ClassStatistics
        from dsal.image_model.novelty_reference import NoveltyReference, expected_scores, packed_trace
        from dsal.linalg.threads import workers

        self._check_known(label)
        if len(self.classes) == 1:
            raise InputError(f"{label!r} is the only class and cannot be dropped: create a new model instead")
        column, kept = self.classes.index(label), [each for each in self.classes if each != label]
        arrays = dict(self.arrays)
        for name in arrays:
            if name.startswith("classifier.") and name.rpartition(".")[2] in ("targets", "weights", "class_weight"):
                arrays[name] = np.delete(in_memory(arrays[name]), column, axis=0)
        statistics = ClassStatistics(**self.part("novelty")).without_class(column)
        reference = NoveltyReference.from_arrays(**self.part("usual"))
        if self.meta["learning"] and statistics.have_scatter:
            factor, targets, weights = (
                in_memory(arrays[f"classifier.main.{name}"]) for name in ("factor", "targets", "weights")
            )
            with workers():  # one thread of BLAS: several would wait for each other longer than they compute
                trace = packed_trace(factor, targets.shape[1])
                expected = expected_scores(targets, weights, self.meta["gammas"][0], trace, statistics)
            reference = reference.renewed(expected, statistics.counts)
        seen = Seen.from_arrays(self.part("seen"), self.classes).renamed(label, None)
        arrays |= state_arrays(statistics, reference, seen, kept)
        meta = {**self.meta, "classes": kept}
        return self._followed_by(f"dropped {label}", arrays, meta, restricted(self.left_out, kept))

    def _followed_by(
        self, change: str, arrays: dict[str, AnyArray], meta: dict[str, Any], left_out: LeftOut
    ) -> Version:
        after = Version("", change, arrays, meta, left_out)
        return replace(after, id=next_id(self.id, change, after.classes, after.part("seen")))

    def _check_known(self, label: str) -> None:
        if not self.meta:
            raise InputError("the model has learned nothing yet: teach it some images first")
        if label not in self.classes:
            raise UnknownNameError("class", label, self.classes)


@dataclass(frozen=True, eq=False)
class Timeline:
    """Where a model is, and the versions that undo and redo return to. Immutable.

    Attributes:
        id: of the present version.
        history: the states before the last changes, newest first; ``change`` is what undo reverts.
        undone: the states that redo returns to, newest first; ``change`` is what it makes again.
    """

    id: str
    history: tuple[Version, ...] = ()
    undone: tuple[Version, ...] = ()

    @property
    def nbytes(self) -> int:
        """Bytes of the versions in memory and in the file; arrays that they share count once."""
        return total_bytes((*self.history, *self.undone))

    def followed(self, before: Version, change: str, id: str) -> Timeline:
        """Return the timeline after a change from ``before``, which undo will return to."""
        before = replace(before, change=change)
        shared = before.sharing(self.history[0]) if self.history else before
        return Timeline(id, (shared, *self.history), ())._bounded()

    def undo(self, present: Version) -> tuple[Version, Timeline]:
        """Return the version before the last change, and the timeline there; ``present`` is what redo returns to."""
        if not self.history:
            raise InputError("there is nothing to undo")
        to, *older = self.history
        left = replace(present, change=to.change).sharing(to)
        return to, Timeline(to.id, tuple(older), (left, *self.undone))._bounded()

    def redo(self, present: Version) -> tuple[Version, Timeline]:
        """Return the version that the last undo left, and the timeline there."""
        if not self.undone:
            raise InputError("there is nothing to redo: only an undo can be reverted, until the next change")
        to, *others = self.undone
        left = replace(present, change=to.change).sharing(to)
        return to, Timeline(to.id, (left, *self.history), tuple(others))._bounded()

    def check(self, expected: str | None) -> None:
        """Raise StaleVersionError unless ``expected`` is the present version; do nothing for None."""
        if expected is None or expected == self.id:
            return
        ids = [version.id for version in self.history]
        since = [version.change for version in self.history[: ids.index(expected) + 1]] if expected in ids else []
        undone = [version.change for version in self.undone if version.id == expected]
        raise StaleVersionError(tuple(reversed(since)) + tuple(f"undone: {change}" for change in undone))

    def _bounded(self) -> Timeline:
        """Drop the oldest states for undo, then those for redo, until all fit into the space for them."""
        undone = bounded(self.undone, MAX_BYTES)
        return Timeline(self.id, bounded(self.history, MAX_BYTES - total_bytes(undone)), undone)


def next_id(before: str, change: str, classes: Sequence[str], seen: dict[str, NDArray[Any]]) -> str:
    """Return the id of a state: a hash of the id before, the change and the learned images.

    Equal ids mean equal states; undo and redo return to the ids that their states had.
    """
    digest = sha256(f"{before}\n{change}\n{tuple(classes)}\n".encode())
    for name in ("keys", "columns"):
        digest.update(seen[name].tobytes() if seen else b"")
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


def in_memory(array: AnyArray) -> NDArray[Any]:
    """Return an array, read from its file if necessary."""
    return array.read() if isinstance(array, StoredArray) else array


def equal(one: AnyArray, other: AnyArray) -> bool:
    """Return whether two arrays are the same, bit for bit; large ones at two places in a file count as different."""
    if one is other:
        return True
    if (one.dtype, one.shape) != (other.dtype, other.shape):
        return False
    if isinstance(one, StoredArray):
        if not isinstance(other, StoredArray):
            return one.holds(other)
        return one.nbytes <= _COMPARED and np.array_equal(one.read(), other.read())
    return other.holds(one) if isinstance(other, StoredArray) else np.array_equal(one, other)


def state_arrays(
    statistics: ClassStatistics, reference: NoveltyReference, seen: Seen, classes: Sequence[str]
) -> dict[str, AnyArray]:
    """Return the arrays of a state besides those of the classifier."""
    return {
        **{f"novelty.{name}": value for name, value in asdict(statistics).items()},
        **{f"usual.{name}": value for name, value in reference.arrays().items()},
        **{f"seen.{name}": value for name, value in seen.arrays(classes).items()},
    }
