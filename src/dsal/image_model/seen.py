"""Record of the learned images and their labels, by hashes of their content. The images are not kept."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dsal.image_model.sources import KEY_BYTES


class Plan(NamedTuple):
    """What to do with the images of a lesson."""

    new: list[int]  # positions of the images to learn
    repeated: int  # images learned before under the same label
    duplicates: int  # images that occur earlier in the lesson under the same label
    moved: list[tuple[int, str]]  # images learned before under another label: position and that label


class Seen:
    """Labels by content hash, one entry for each time the content was learned. Immutable.

    >>> seen = Seen().plus([b"0" * 16, b"1" * 16], ["cat", "dog"])
    >>> seen.labels(b"0" * 16), seen.minus([b"0" * 16], ["cat"]).labels(b"0" * 16)
    (('cat',), ())
    """

    def __init__(self, labels: dict[bytes, tuple[str, ...]] | None = None) -> None:
        self._labels = {} if labels is None else labels

    def __len__(self) -> int:
        return sum(map(len, self._labels.values()))

    def __contains__(self, key: bytes) -> bool:
        return key in self._labels

    def labels(self, key: bytes | None) -> tuple[str, ...]:
        """Return the labels under which this content was learned; empty if it was not learned or ``key`` is None."""
        return () if key is None else self._labels.get(key, ())

    def plan(self, keys: Sequence[bytes | None], labels: Sequence[str], again: bool = False) -> Plan:
        """Sort the images of a lesson, given by keys and labels, into those to learn and those to skip.

        With ``again``, all are learned; an image without a key is always learned.
        """
        if again:
            return Plan(list(range(len(keys))), 0, 0, [])
        new, repeated, duplicates, moved = list[int](), 0, 0, list[tuple[int, str]]()
        lesson = set[tuple[bytes, str]]()
        for position, (key, label) in enumerate(zip(keys, labels, strict=True)):
            learned = self.labels(key)
            if label in learned:
                repeated += 1
            elif learned:
                moved.append((position, learned[0]))
            elif key is not None and (key, label) in lesson:
                duplicates += 1
            else:
                new.append(position)
                if key is not None:
                    lesson.add((key, label))
        return Plan(new, repeated, duplicates, moved)

    def plus(self, keys: Iterable[bytes | None], labels: Iterable[str]) -> Seen:
        """Return the record with learned images added."""
        grown = dict(self._labels)
        for key, label in zip(keys, labels, strict=True):
            if key is not None:
                grown[key] = (*grown.get(key, ()), label)
        return Seen(grown)

    def minus(self, keys: Iterable[bytes | None], labels: Iterable[str]) -> Seen:
        """Return the record with forgotten images removed, each once."""
        left = dict(self._labels)
        for key, label in zip(keys, labels, strict=True):
            if key is not None and label in left.get(key, ()):
                rest = list(left[key])
                rest.remove(label)
                left[key] = tuple(rest)
        return Seen({key: rest for key, rest in left.items() if rest})

    def merged(self, other: Seen) -> Seen:
        """Return the record of what either model has learned."""
        both = dict(self._labels)
        for key, labels in other._labels.items():
            both[key] = (*both.get(key, ()), *labels)
        return Seen(both)

    def shared(self, other: Seen) -> int:
        """Return the number of images that both models have learned."""
        return len(self._labels.keys() & other._labels.keys())

    def renamed(self, old: str, new: str | None) -> Seen:
        """Return the record with a class renamed, or removed if ``new`` is None."""
        changed = {
            key: tuple(new if label == old else label for label in labels if label != old or new is not None)
            for key, labels in self._labels.items()
        }
        return Seen({key: labels for key, labels in changed.items() if labels})  # type: ignore[misc]

    def arrays(self, classes: Sequence[str]) -> dict[str, NDArray[Any]]:
        """Return the record as arrays for a file: keys (n, 16) and the columns (n,) of their labels."""
        column = {label: number for number, label in enumerate(classes)}
        pairs = [(key, column[label]) for key, labels in sorted(self._labels.items()) for label in labels]
        keys = np.frombuffer(b"".join(key for key, _ in pairs), np.uint8).reshape(-1, KEY_BYTES)
        return {"keys": keys, "columns": np.array([number for _, number in pairs], dtype=np.int32)}

    @classmethod
    def from_arrays(cls, arrays: dict[str, NDArray[Any]], classes: Sequence[str]) -> Seen:
        """Restore the record from :meth:`arrays`."""
        return cls().plus(map(bytes, arrays["keys"]), (classes[number] for number in arrays["columns"]))
