"""Lists of a million file paths in a few bytes each; as Python's own path objects they would take gigabytes."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import overload

import numpy as np
from numpy.typing import NDArray


class Listing(Sequence[Path]):
    """Paths below one folder, as a sequence; each path object is created on access.

    Memory per path: its text below the folder and 8 bytes; 8 bytes more in a selection.

    Args:
        folder: common parent of all paths.
        names: paths relative to it, with ``/``.

    >>> listing = Listing(Path("photos"), ["cats/1.jpg", "dogs/1.jpg", "dogs/2.jpg"])
    >>> len(listing), listing[-1].as_posix(), [path.name for path in listing.take(np.array([2, 0]))]
    (3, 'photos/dogs/2.jpg', ['2.jpg', '1.jpg'])
    """

    def __init__(self, folder: Path, names: Iterable[str]) -> None:
        text, ends = bytearray(), [0]
        for name in names:
            text += os.fsencode(name)
            ends.append(len(text))
        self.folder, self._text = folder, bytes(text)
        self._ends = np.array(ends, dtype=np.int64)
        self._rows: NDArray[np.int64] | None = None  # None: all of them, in order

    def __len__(self) -> int:
        return len(self._ends) - 1 if self._rows is None else len(self._rows)

    @overload
    def __getitem__(self, at: int) -> Path: ...
    @overload
    def __getitem__(self, at: slice) -> Listing: ...
    def __getitem__(self, at: int | slice) -> Path | Listing:
        if isinstance(at, slice):
            return self.take(np.arange(len(self))[at])
        return self.folder / self.name(at)

    def name(self, at: int) -> str:
        """Return path number ``at``, relative to the folder, with ``/``."""
        row = range(len(self))[at] if self._rows is None else int(self._rows[at])
        return os.fsdecode(self._text[self._ends[row] : self._ends[row + 1]])

    def take(self, rows: NDArray[np.int64]) -> Listing:
        """Return some of the paths; the text is shared."""
        some = object.__new__(Listing)
        some.folder, some._text, some._ends = self.folder, self._text, self._ends
        some._rows = np.array(rows if self._rows is None else self._rows[rows], dtype=np.int64)
        return some
