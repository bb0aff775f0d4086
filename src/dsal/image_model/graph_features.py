"""Features of images by ONNX Runtime, several times as fast as PyTorch on a CPU; each file is read once.

Importable without PyTorch. A backbone is converted the first time there are enough images to make that worthwhile, and
cached by its fingerprint under ``~/.cache/dsal/onnx`` (or ``$DSAL_DATA/onnx``). Features agree with PyTorch's to 1e-4.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from dsal.base.options import user_folder
from dsal.base.progress import OnProgress
from dsal.data.images.decode import ImageSource, Pixels, check_broken, decode_image
from dsal.errors import FileFormatError
from dsal.files.atomic import atomic_write
from dsal.image_model.sources import content_key, file_content

if TYPE_CHECKING:
    from dsal.backbones.backbone import Backbone
    from dsal.distributed import Team

Known: TypeAlias = Callable[[bytes], bool]
"""Whether an image with this content key needs no features, because it was learned before."""
T = TypeVar("T")
WORTH_CONVERTING = 8 * 224**2  # pixels: converting takes as long as about a dozen photographs in PyTorch
_AT_ONCE = 2 * 224**2  # pixels whose maps fit into a core's cache; eight photographs at a time take 15% longer each
_BATCH = 4  # images; larger batches are no faster in ONNX Runtime


class Graph:
    """An ONNX model of a backbone; many threads may run it at the same time, each on one core."""

    def __init__(self, model: bytes | str) -> None:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        options.log_severity_level = 3
        self._session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])

    @property
    def width(self) -> int:
        """Number of features."""
        return int(self._session.get_outputs()[0].shape[1])

    def __call__(self, images: NDArray[np.uint8]) -> NDArray[np.float32]:
        """Return features (n, d) of images (n, c, size, size)."""
        step = max(_AT_ONCE // (images.shape[2] * images.shape[3]), 1)
        pieces = [images[start : start + step] for start in range(0, len(images), step)] or [images]
        return np.concatenate([self._session.run(["features"], {"images": piece})[0] for piece in pieces])


class ImageBatch(NamedTuple):
    """Some consecutive images: their pixels, then their features."""

    rows: list[int]  # positions, among all images, of those that could be read and are not known
    x: NDArray[Any]  # of those: pixels (n, channels, size, size), then features (n, d)
    broken: list[str]  # images that could not be read, and why
    keys: dict[int, bytes]  # content keys by position; empty if nobody asked for them
    images: int  # how many they are, with those that are broken or known


@dataclass(frozen=True, eq=False)
class Features:
    """Features of the images that could be read and are not known.

    Attributes:
        rows: their positions among the images passed in (n,).
        x: float32 (n, d).
        broken: images that could not be read, and why.
        keys: content keys by position, of all images that could be opened; empty if nobody asked for them.
    """

    rows: NDArray[np.int64]
    x: NDArray[np.float32]
    broken: tuple[str, ...]
    keys: dict[int, bytes]


class FeatureSource(ABC):
    """Turns images into features: :class:`GraphFeatures`, or ``BackboneFeatures`` with PyTorch.

    Attributes:
        team: the processes that extract features together; None for this one alone.
    """

    team: Team | None = None

    def stream(
        self, images: Sequence[ImageSource], *, broken: str = "stop", known: Known | None = None
    ) -> Iterator[ImageBatch]:
        """Yield features of images in order, as soon as they are ready.

        Args:
            images: see :func:`~dsal.data.images.decode.decode_image`.
            broken: ``"stop"`` at the first image that cannot be read, or ``"skip"`` it.
            known: hash every image and leave out those for which this returns True; by default, hash none.
        """
        check_broken(broken)
        return self._stream(images, broken, known, len(images))

    def collect(
        self,
        images: Sequence[ImageSource],
        *,
        broken: str = "stop",
        known: Known | None = None,
        progress: OnProgress | None = None,
    ) -> Features:
        """Return features of all images; ``progress`` is called with (images done, total images).

        Every rank of the team reads a part, and all get all features.

        Raises:
            FileFormatError: an image cannot be read or, with ``broken="skip"``, none of them can.
        """
        check_broken(broken)
        # whole batches: other batch sizes round differently
        share = slice(None) if self.team is None else self.team.share(len(images), unit=self._batch)
        mine = images[share]
        rows, pieces = list[int](), [np.empty((0, self._width), np.float32)]
        reasons, keys, done = list[str](), dict[int, bytes](), 0
        for batch in self._stream(mine, broken, known, len(images)):
            rows += batch.rows
            pieces.append(batch.x)
            reasons += batch.broken
            keys |= batch.keys
            done += batch.images
            if progress is not None:
                progress(done, len(mine))
        found = Features(np.array(rows, dtype=np.int64), np.concatenate(pieces), tuple(reasons), keys)
        if self.team is not None and self.team.size > 1:
            found = _gathered(found, share.start, self.team)
        if found.broken and len(found.broken) == len(images):
            raise FileFormatError(f"none of {len(images)} images can be read; first error: {found.broken[0]}")
        return found

    @property
    @abstractmethod
    def _width(self) -> int:
        """Number of features."""

    @property
    @abstractmethod
    def _batch(self) -> int:
        """Number of images in a batch."""

    @abstractmethod
    def _stream(
        self, images: Sequence[ImageSource], broken: str, known: Known | None, total: int
    ) -> Iterator[ImageBatch]:
        """Yield features of ``images``, which are this rank's part of ``total``."""


def _gathered(found: Features, start: int, team: Team) -> Features:
    """Return the features that all ranks have found; those of this one begin with image number ``start``."""
    keys = {start + row: key for row, key in found.keys.items()}
    return Features(
        rows=team.rows(start + found.rows),
        x=team.rows(found.x),
        broken=tuple(reason for some in team.gathered(found.broken) for reason in some),
        keys={row: key for some in team.gathered(keys) for row, key in some.items()},
    )


@dataclass(frozen=True, eq=False)
class GraphFeatures(FeatureSource):
    """Features by a graph: every thread decodes a few images and runs the graph on one core.

    This keeps all cores busy: no thread waits for another.

    Attributes:
        graph: maps images to features.
        size: side of the images that the graph expects, in pixels.
        channels: 3 for colour, 1 for grey.
        workers: number of threads; by default the number of processors.
    """

    graph: Graph
    size: int
    channels: int
    workers: int | None = None

    @property
    def _width(self) -> int:
        return self.graph.width

    @property
    def _batch(self) -> int:
        return _BATCH

    def _stream(
        self, images: Sequence[ImageSource], broken: str, known: Known | None, total: int
    ) -> Iterator[ImageBatch]:
        def work(rows: range) -> ImageBatch:
            batch = decode_rows(images, rows, self.size, self.channels, broken, known)
            x = self.graph(batch.x) if batch.rows else np.empty((0, self.graph.width), np.float32)
            return batch._replace(x=x)

        return in_threads(work, len(images), _BATCH, self.workers)


def in_threads(work: Callable[[range], T], count: int, batch: int, workers: int | None = None) -> Iterator[T]:
    """Yield ``work(rows)`` for the ranges of ``batch`` rows among ``count``, in order; threads work ahead."""
    threads = workers or os.cpu_count() or 1
    pool = ThreadPoolExecutor(threads, thread_name_prefix="dsal-images")
    try:
        queue: deque[Future[T]] = deque()
        for start in range(0, count, batch):
            queue.append(pool.submit(work, range(start, min(start + batch, count))))
            if len(queue) > 2 * threads:
                yield queue.popleft().result()
        while queue:
            yield queue.popleft().result()
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def decode_rows(
    images: Sequence[ImageSource], rows: range, size: int, channels: int, broken: str, known: Known | None
) -> ImageBatch:
    """Decode some of the images; with ``known``, hash each and leave out those that are known. Files are read once."""
    batch = ImageBatch([], np.empty((0, channels, size, size), np.uint8), [], {}, len(rows))
    pixels = []
    for row in rows:
        image, name = images[row], f"number {row + 1}"
        try:
            content: ImageSource = image
            if known is not None:
                content = file_content(image)
                batch.keys[row] = content_key(content)
                if known(batch.keys[row]):
                    continue
            pixels.append(_decoded(image, content, size, channels, name))
            batch.rows.append(row)
        except FileFormatError as error:
            if broken == "stop":
                raise
            batch.broken.append(str(error))
    return batch._replace(x=np.stack(pixels)) if pixels else batch


def _decoded(image: ImageSource, content: ImageSource, size: int, channels: int, name: str) -> Pixels:
    try:
        return decode_image(content, size, channels, name=name)
    except FileFormatError:
        return decode_image(image, size, channels, name=name)  # raises an error that names the file


def cached_graph(fingerprint: str) -> Graph | None:
    """Return the cached graph of a backbone; None if it was never converted or ONNX Runtime is not installed."""
    path = cached_path(fingerprint)
    return _open(str(path)) if path.is_file() else None


def converted(backbone: Backbone) -> bytes | None:
    """Return the graph of a backbone as an ONNX file; None if packages are missing, or it cannot be converted."""
    try:
        from dsal.backbones.graphs import to_onnx

        model = to_onnx(backbone)
        images = np.random.default_rng(0).integers(
            0, 256, (2, backbone.card.in_channels, backbone.card.size, backbone.card.size), dtype=np.uint8
        )
        return model if _agree(backbone, Graph(model), images) else None
    except Exception:  # whatever exporter and runtime raise: fall back to PyTorch
        return None


def graph_of(backbone: Backbone, pixels: int, convert: Callable[[Backbone], bytes | None] = converted) -> Graph | None:
    """Return the graph of a backbone on the CPU, converted if ``pixels`` make that worthwhile; None to use PyTorch."""
    if os.environ.get("DSAL_ONNX", "1") == "0" or backbone.feature_mean.device.type != "cpu":
        return None
    if backbone.card.architecture == "onnx":
        return None  # already runs in ONNX Runtime
    fingerprint = backbone.fingerprint()
    found = cached_graph(fingerprint)
    if found is not None or pixels < WORTH_CONVERTING:
        return found
    model = convert(backbone)
    if model is None:
        return None
    with suppress(OSError):  # an unwritable cache is not an error
        path = cached_path(fingerprint)
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic_write(path) as temporary:
            temporary.write_bytes(model)
    return Graph(model)


def _agree(backbone: Backbone, graph: Graph, images: NDArray[np.uint8]) -> bool:
    import torch

    expected = backbone.extract(torch.from_numpy(images)).numpy()
    return bool(np.abs(graph(images) - expected).max() <= 1e-4 * max(float(np.abs(expected).max()), 1.0))


def cached_path(fingerprint: str) -> Path:
    """Return the path where the graph of a backbone is cached, whether or not it exists."""
    return user_folder("DSAL_DATA") / "onnx" / f"{fingerprint}.onnx"


@lru_cache(maxsize=4)
def _open(path: str) -> Graph | None:
    try:
        return Graph(path)
    except Exception:  # not installed, or a damaged file, for which the runtime raises many exceptions
        return None
