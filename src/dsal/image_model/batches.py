"""Extract features batch by batch, decoding and running the graph in the same threads. Does not need PyTorch."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from os import cpu_count
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dsal.data.images.decode import ImageSource, check_broken, decode_batch
from dsal.image_model.graph import Graph

_BATCH = 4  # images; larger batches are no faster in ONNX Runtime


class FeatureBatch(NamedTuple):
    """Features of some consecutive images."""

    rows: list[int]  # positions, among all images, of those that could be read
    x: NDArray[np.float32]  # (n, d)
    broken: list[str]  # images that could not be read, and why


def graph_batches(
    graph: Graph,
    images: Sequence[ImageSource],
    size: int,
    channels: int,
    *,
    broken: str = "stop",
    workers: int | None = None,
) -> Iterator[FeatureBatch]:
    """Yield features of images in order. Every thread decodes a few images and runs the graph on one core.

    This keeps all cores busy: no thread waits for another.

    Args:
        graph: maps images to features.
        images: see :func:`~dsal.data.images.decode.decode_image`.
        size: side of the images that the graph expects, in pixels.
        channels: 3 for colour, 1 for grey.
        broken: ``"stop"`` at the first image that cannot be read, or ``"skip"`` it.
        workers: number of threads; by default the number of processors.
    """
    check_broken(broken)
    count = workers or cpu_count() or 1
    pool = ThreadPoolExecutor(count, thread_name_prefix="dsal-images")

    def work(start: int) -> FeatureBatch:
        decoded = decode_batch(images, range(start, min(start + _BATCH, len(images))), size, channels, broken=broken)
        x = graph(decoded.images) if decoded.rows else np.empty((0, graph.width), np.float32)
        return FeatureBatch(decoded.rows, x, decoded.broken)

    try:
        queue: deque[Future[FeatureBatch]] = deque()
        for start in range(0, len(images), _BATCH):
            queue.append(pool.submit(work, start))
            if len(queue) > 2 * count:
                yield queue.popleft().result()
        while queue:
            yield queue.popleft().result()
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
