"""Images to features: decoding in threads while the backbone works."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from os import cpu_count

import numpy as np
import torch
from numpy.typing import NDArray

from dsal.backbones.backbone import Backbone
from dsal.data.decode import ImageSource, decode_batches
from dsal.distributed import current
from dsal.errors import FileFormatError
from dsal.progress import OnProgress


@dataclass(frozen=True, eq=False)
class Features:
    """Features of the images that could be read.

    Attributes:
        rows: number of each of them among all images asked for (n,).
        x: float32 (n, d).
        broken: what could not be read, and why.
    """

    rows: NDArray[np.int64]
    x: NDArray[np.float32]
    broken: tuple[str, ...]


def read_features(
    backbone: Backbone,
    images: Sequence[ImageSource],
    *,
    broken: str = "stop",
    batch_size: int | None = None,
    workers: int | None = None,
    progress: OnProgress | None = None,
) -> Features:
    """Features of images, in their order; in a team each rank reads its share, and all get all features.

    Args:
        backbone: runs where its weights are.
        images: see :func:`~dsal.data.decode.decode_image`.
        broken: ``"stop"`` at the first file that cannot be read, or ``"skip"`` it.
        batch_size: images at a time; by default 8 on a CPU, whose caches hold no more, and 64 elsewhere.
        workers: threads that decode; by default as many as there are processors, half of them where the backbone
            needs them, too.
        progress: called with (files done, files in all) of this rank's share.

    Raises:
        FileFormatError: a file cannot be read, or with ``broken="skip"``, none of them can.
    """
    card, team = backbone.card, current()
    on_cpu = backbone.feature_mean.device.type == "cpu"
    batch_size = (8 if on_cpu else 64) if batch_size is None else batch_size
    if workers is None and on_cpu:
        workers = max((cpu_count() or 1) // 2, 1)
    share = team.share(len(images), unit=batch_size)  # whole batches: another size would change features by rounding
    mine = images[share]
    rows: list[int] = []
    pieces = [np.empty((0, backbone.widths["stages"]), np.float32)]
    reasons: list[str] = []
    batches = decode_batches(mine, card.size, card.in_channels, batch_size=batch_size, broken=broken, workers=workers)
    for batch in batches:
        if batch.rows:
            pieces.append(backbone.extract(torch.from_numpy(batch.images)).cpu().numpy())
        rows += batch.rows
        reasons += batch.broken
        if progress is not None:
            progress(len(rows) + len(reasons), len(mine))
    all_rows = team.rows(share.start + np.array(rows, dtype=np.int64))
    broken_files = tuple(reason for some in team.gathered(reasons) for reason in some)
    if not len(all_rows):
        raise FileFormatError(f"none of {len(images)} images can be read; the first: {broken_files[0]}")
    return Features(all_rows, team.rows(np.concatenate(pieces)), broken_files)
