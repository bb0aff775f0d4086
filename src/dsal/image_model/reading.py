"""Extract features of images by ONNX Runtime or PyTorch, whichever is faster, while threads decode."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from os import cpu_count

import numpy as np
import torch
from numpy.typing import NDArray

from dsal.backbones.backbone import Backbone
from dsal.base.progress import OnProgress
from dsal.data.images.decode import ImageSource, decode_batches
from dsal.distributed import ALONE, Team
from dsal.errors import FileFormatError
from dsal.image_model.batches import FeatureBatch, graph_batches
from dsal.image_model.graph import graph_of


@dataclass(frozen=True, eq=False)
class Features:
    """Features of the images that could be read.

    Attributes:
        rows: their positions among the images passed in (n,).
        x: float32 (n, d).
        broken: images that could not be read, and why.
    """

    rows: NDArray[np.int64]
    x: NDArray[np.float32]
    broken: tuple[str, ...]


def feature_batches(
    backbone: Backbone,
    images: Sequence[ImageSource],
    *,
    broken: str = "stop",
    batch_size: int | None = None,
    workers: int | None = None,
    pixels: int | None = None,
) -> Iterator[FeatureBatch]:
    """Yield features of images in order, as soon as they are ready; arguments as in :func:`read_features`.

    ``pixels`` is the total number of pixels to read, which decides whether to convert the backbone; by default that of
    ``images``.
    """
    card = backbone.card
    on_cpu = backbone.feature_mean.device.type == "cpu"
    graph = graph_of(backbone, len(images) * card.size**2 if pixels is None else pixels)
    if graph is not None:
        yield from graph_batches(graph, images, card.size, card.in_channels, broken=broken, workers=workers)
        return
    if workers is None and on_cpu:
        workers = max((cpu_count() or 1) // 2, 1)
    size = (8 if on_cpu else 64) if batch_size is None else batch_size
    for batch in decode_batches(images, card.size, card.in_channels, batch_size=size, broken=broken, workers=workers):
        if batch.rows:
            x = backbone.extract(torch.from_numpy(batch.images)).cpu().numpy()
        else:
            x = np.empty((0, backbone.widths["stages"]), np.float32)
        yield FeatureBatch(batch.rows, x, batch.broken)


def read_features(
    backbone: Backbone,
    images: Sequence[ImageSource],
    *,
    broken: str = "stop",
    batch_size: int | None = None,
    workers: int | None = None,
    progress: OnProgress | None = None,
    team: Team = ALONE,
) -> Features:
    """Return features of images in order; in distributed runs each rank reads a part, and all get all features.

    Args:
        backbone: runs on the device of its weights.
        images: see :func:`~dsal.data.images.decode.decode_image`.
        broken: ``"stop"`` at the first file that cannot be read, or ``"skip"`` it.
        batch_size: images per batch in PyTorch; by default 8 on a CPU, whose caches hold no more, and 64 elsewhere.
        workers: number of threads; by default the number of processors, or half of it if PyTorch runs on the CPU.
        progress: called with (files done, total files) of this rank.
        team: the processes that share the work.

    Raises:
        FileFormatError: a file cannot be read or, with ``broken="skip"``, none of them can.
    """
    if batch_size is None:
        batch_size = 8 if backbone.feature_mean.device.type == "cpu" else 64
    share = team.share(len(images), unit=batch_size)  # whole batches: other batch sizes round differently
    mine = images[share]
    rows: list[int] = []
    pieces = [np.empty((0, backbone.widths["stages"]), np.float32)]
    reasons: list[str] = []
    pixels = len(images) * backbone.card.size**2
    for batch in feature_batches(backbone, mine, broken=broken, batch_size=batch_size, workers=workers, pixels=pixels):
        pieces.append(batch.x)
        rows += batch.rows
        reasons += batch.broken
        if progress is not None:
            progress(len(rows) + len(reasons), len(mine))
    all_rows = team.rows(share.start + np.array(rows, dtype=np.int64))
    broken_files = tuple(reason for some in team.gathered(reasons) for reason in some)
    if not len(all_rows):
        raise FileFormatError(f"none of {len(images)} images can be read; first error: {broken_files[0]}")
    return Features(all_rows, team.rows(np.concatenate(pieces)), broken_files)
