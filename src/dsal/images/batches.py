"""Features batch by batch, as they are made: decoding and the graph in the same threads. Does without PyTorch."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from os import cpu_count
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dsal.data.decode import ImageSource, check_broken, decode_batch
from dsal.images.graph import Graph

_BATCH = 4  # images; the runtime gains nothing from more


class FeatureBatch(NamedTuple):
    """Features of some neighbouring images."""

    rows: list[int]  # number of each image that could be read among all
    x: NDArray[np.float32]  # (n, d)
    broken: list[str]  # what could not be read, and why


def graph_batches(
    graph: Graph,
    images: Sequence[ImageSource],
    size: int,
    channels: int,
    *,
    broken: str = "stop",
    workers: int | None = None,
) -> Iterator[FeatureBatch]:
    """Features of images in order. Every thread decodes a few images and runs the graph on one core.

    That keeps all cores busy without any waiting for another: reading costs no more than its own work.

    Args:
        graph: images to features.
        images: see :func:`~dsal.data.decode.decode_image`.
        size: side of the images for the graph, in pixels.
        channels: 3 for colour, 1 for grey.
        broken: ``"stop"`` at the first image that cannot be read, or ``"skip"`` it.
        workers: threads; as many as there are processors by default.
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
