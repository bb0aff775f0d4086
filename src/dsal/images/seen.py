"""Which images were learned, and as what: hashes of their content, never the images."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dsal.images.sources import KEY_BYTES


class Seen:
    """The labels under which each content was learned, once for each time; a value that does not change.

    >>> seen = Seen().plus([b"0" * 16, b"1" * 16], ["cat", "dog"])
    >>> seen.labels(b"0" * 16), seen.minus([b"0" * 16], ["cat"]).labels(b"0" * 16)
    (('cat',), ())
    """

    def __init__(self, labels: dict[bytes, tuple[str, ...]] | None = None) -> None:
        self._labels = {} if labels is None else labels

    def __len__(self) -> int:
        return sum(map(len, self._labels.values()))

    def labels(self, key: bytes | None) -> tuple[str, ...]:
        """As what this content was learned; empty if it was not, or cannot be known."""
        return () if key is None else self._labels.get(key, ())

    def plus(self, keys: Iterable[bytes | None], labels: Iterable[str]) -> Seen:
        """Add images that were learned."""
        grown = dict(self._labels)
        for key, label in zip(keys, labels, strict=True):
            if key is not None:
                grown[key] = (*grown.get(key, ()), label)
        return Seen(grown)

    def minus(self, keys: Iterable[bytes | None], labels: Iterable[str]) -> Seen:
        """Take away images that were forgotten, each once."""
        left = dict(self._labels)
        for key, label in zip(keys, labels, strict=True):
            if key is not None and label in left.get(key, ()):
                rest = list(left[key])
                rest.remove(label)
                left[key] = tuple(rest)
        return Seen({key: rest for key, rest in left.items() if rest})

    def merged(self, other: Seen) -> Seen:
        """What either model has learned."""
        both = dict(self._labels)
        for key, labels in other._labels.items():
            both[key] = (*both.get(key, ()), *labels)
        return Seen(both)

    def shared(self, other: Seen) -> int:
        """How many images both models have learned."""
        return len(self._labels.keys() & other._labels.keys())

    def renamed(self, old: str, new: str | None) -> Seen:
        """A class under its new name, or without it."""
        changed = {
            key: tuple(new if label == old else label for label in labels if label != old or new is not None)
            for key, labels in self._labels.items()
        }
        return Seen({key: labels for key, labels in changed.items() if labels})  # type: ignore[misc]

    def arrays(self, classes: Sequence[str]) -> dict[str, NDArray[Any]]:
        """As arrays for a file: keys (n, 16) and the columns (n,) of their labels."""
        column = {label: number for number, label in enumerate(classes)}
        pairs = [(key, column[label]) for key, labels in sorted(self._labels.items()) for label in labels]
        keys = np.frombuffer(b"".join(key for key, _ in pairs), np.uint8).reshape(-1, KEY_BYTES)
        return {"keys": keys, "columns": np.array([number for _, number in pairs], dtype=np.int32)}

    @classmethod
    def from_arrays(cls, arrays: dict[str, NDArray[Any]], classes: Sequence[str]) -> Seen:
        """What :meth:`arrays` returned; files of version 0.1 have no such arrays."""
        if not arrays:
            return cls()
        return cls().plus(map(bytes, arrays["keys"]), (classes[number] for number in arrays["columns"]))
