"""Image files to features: decoding in threads while the backbone works."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from dsal.backbones.backbone import Backbone
from dsal.data.dataset import Progress
from dsal.data.decode import decode_batches
from dsal.errors import FileFormatError


@dataclass(frozen=True, eq=False)
class Features:
    """Features of the files that could be read.

    Attributes:
        rows: number of each of them among all files asked for (n,).
        x: float32 (n, d).
        broken: what could not be read, and why.
    """

    rows: NDArray[np.int64]
    x: NDArray[np.float32]
    broken: tuple[str, ...]


def read_features(
    backbone: Backbone,
    paths: Sequence[Path],
    *,
    broken: str = "stop",
    batch_size: int = 32,
    workers: int | None = None,
    progress: Progress | None = None,
) -> Features:
    """Features of image files, in their order.

    Args:
        backbone: runs where its weights are.
        paths: files.
        broken: ``"stop"`` at the first file that cannot be read, or ``"skip"`` it.
        batch_size: images at a time.
        workers: threads that decode; as many as there are processors by default.
        progress: called with (files done, files in all).

    Raises:
        FileFormatError: a file cannot be read, or with ``broken="skip"``, none of them can.
    """
    card = backbone.card
    rows: list[int] = []
    pieces: list[NDArray[np.float32]] = []
    reasons: list[str] = []
    batches = decode_batches(paths, card.size, card.in_channels, batch_size=batch_size, broken=broken, workers=workers)
    for batch in batches:
        if batch.rows:
            pieces.append(backbone.extract(batch.images).cpu().numpy())
        rows += batch.rows
        reasons += batch.broken
        if progress is not None:
            progress(len(rows) + len(reasons), len(paths))
    if not rows:
        raise FileFormatError(f"none of {len(paths)} images can be read; the first: {reasons[0]}")
    return Features(np.array(rows), np.concatenate(pieces), tuple(reasons))
