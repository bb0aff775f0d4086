"""Confusion counts in the form that the page draws: few phases, few cells, few bytes.

Up to ``SIDE`` classes every cell is one pair of classes; above, neighbours in the class order share a cell. The most
confused pairs are always found class by class, before anything is merged.
"""

from __future__ import annotations

import base64
import zlib
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dsal.protocol.metrics import spread_out
from dsal.protocol.results import read_confusion
from dsal.report.run_pages import Run

SIDE = 128  # cells per side
PHASES = 51  # every phase up to the paper's K = 50 on CIFAR-100
PAIRS = 10


@dataclass(frozen=True)
class Pair:
    """Test images of one class predicted as another."""

    true: int
    predicted: int
    count: int
    total: int  # test images of the true class


@dataclass(frozen=True)
class ConfusionChart:
    """A run's matrices at chosen phases, ``group`` classes per cell, and the most confused pairs of each phase."""

    phases: tuple[int, ...]
    seen: tuple[int, ...]
    group: int
    matrices: tuple[NDArray[np.int64], ...]
    pairs: tuple[tuple[Pair, ...], ...]

    def packed(self) -> tuple[str, int]:
        """Return all matrices in sequence as base64 of deflated little-endian counts, and the bytes per count."""
        flat = np.concatenate([matrix.ravel() for matrix in self.matrices])
        width = 2 if flat.max(initial=0) < 2**16 else 4
        raw = flat.astype(f"<u{width}").tobytes()
        return base64.b64encode(zlib.compress(raw, 9)).decode("ascii"), width


def confusion_of(run: Run) -> ConfusionChart | None:
    """Return the run's confusion counts, merged and thinned for display; ``None`` if the run kept none."""
    phases = [run.phases[run.kept[number]] for number in spread_out(len(run.kept), PHASES)]
    group = -(-run.classes // SIDE)
    seen = {phase.number: phase.classes_seen for phase in phases}
    found = [(_merged(counts, group), _worst(counts)) for counts in read_confusion(run.path, run.seeds, seen)]
    if not found:
        return None
    matrices, pairs = zip(*found, strict=True)
    return ConfusionChart(tuple(seen), tuple(seen.values()), group, matrices, pairs)


def _merged(counts: NDArray[np.int64], group: int) -> NDArray[np.int64]:
    """Sum blocks of ``group`` x ``group`` counts; the last block may be smaller."""
    starts = np.arange(0, len(counts), group)
    rows: NDArray[np.int64] = np.add.reduceat(counts, starts, axis=0)
    return np.add.reduceat(rows, starts, axis=1)


def _worst(counts: NDArray[np.int64]) -> tuple[Pair, ...]:
    wrong = counts.copy()
    np.fill_diagonal(wrong, 0)
    totals = counts.sum(axis=1)
    cells = np.flatnonzero(wrong)  # few; sorting all cells would take seconds with 1623 classes
    cells = cells[np.argsort(-wrong.ravel()[cells], kind="stable")[:PAIRS]]
    pairs = (divmod(int(cell), len(counts)) for cell in cells)
    return tuple(Pair(i, j, int(wrong[i, j]), int(totals[i])) for i, j in pairs)
