"""Features of images by ONNX Runtime, several times as fast as PyTorch on a CPU; each file is read once.

Importable without PyTorch. A backbone is converted the first time there are enough images to make that worthwhile, and
cached by its fingerprint under ``~/.cache/dsal/onnx`` (or ``$DSAL_DATA/onnx``). Features agree with PyTorch's to 1e-4.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from dsal.base.progress import OnProgress
from dsal.data.images.decode import ImageSource, Pixels, check_broken, decode_image
from dsal.errors import FileFormatError
from dsal.files.atomic import atomic_write
from dsal.image_model.sources import content_key, file_content

if TYPE_CHECKING:
    from dsal.backbones.backbone import Backbone

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


class FeatureBatch(NamedTuple):
    """Features of some consecutive images."""

    rows: list[int]  # positions, among all images, of those that could be read and are not known
    x: NDArray[np.float32]  # (n, d)
    broken: list[str]  # images that could not be read, and why
    keys: dict[int, bytes]  # content keys by position; empty if nobody asked for them
    images: int  # how many they are, with those that are broken or known


class DecodedBatch(NamedTuple):
    """Pixels of some consecutive images; the fields are those of :class:`FeatureBatch`."""

    rows: list[int]
    pixels: Pixels  # (n, channels, size, size)
    broken: list[str]
    keys: dict[int, bytes]
    images: int


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


class FeatureSource(Protocol):
    """Turns images into features: :class:`GraphFeatures`, or ``BackboneFeatures`` with PyTorch."""

    def stream(
        self, images: Sequence[ImageSource], *, broken: str = "stop", known: Known | None = None
    ) -> Iterator[FeatureBatch]:
        """Yield features of images in order, as soon as they are ready.

        Args:
            images: see :func:`~dsal.data.images.decode.decode_image`.
            broken: ``"stop"`` at the first image that cannot be read, or ``"skip"`` it.
            known: hash every image and leave out those for which this returns True; by default, hash none.
        """

    def collect(
        self,
        images: Sequence[ImageSource],
        *,
        broken: str = "stop",
        known: Known | None = None,
        progress: OnProgress | None = None,
    ) -> Features:
        """Return features of all images; ``progress`` is called with (images done, total images).

        Raises:
            FileFormatError: an image cannot be read or, with ``broken="skip"``, none of them can.
        """


@dataclass(frozen=True, eq=False)
class GraphFeatures:
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

    def stream(
        self, images: Sequence[ImageSource], *, broken: str = "stop", known: Known | None = None
    ) -> Iterator[FeatureBatch]:
        """Yield features of images in order: see :class:`FeatureSource`."""

        def work(rows: range) -> FeatureBatch:
            batch = decode_rows(images, rows, self.size, self.channels, broken=broken, known=known)
            x = self.graph(batch.pixels) if batch.rows else np.empty((0, self.graph.width), np.float32)
            return FeatureBatch(batch.rows, x, batch.broken, batch.keys, batch.images)

        check_broken(broken)
        return in_threads(work, len(images), _BATCH, self.workers)

    def collect(
        self,
        images: Sequence[ImageSource],
        *,
        broken: str = "stop",
        known: Known | None = None,
        progress: OnProgress | None = None,
    ) -> Features:
        """Return features of all images: see :class:`FeatureSource`."""
        found = joined(self.stream(images, broken=broken, known=known), self.graph.width, len(images), progress)
        return check_any(found, len(images))


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
    images: Sequence[ImageSource], rows: range, size: int, channels: int, *, broken: str, known: Known | None
) -> DecodedBatch:
    """Decode some of the images; with ``known``, hash each and leave out those that are known. Files are read once."""
    batch = DecodedBatch([], np.empty((0, channels, size, size), np.uint8), [], {}, len(rows))
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
    return batch._replace(pixels=np.stack(pixels)) if pixels else batch


def _decoded(image: ImageSource, content: ImageSource, size: int, channels: int, name: str) -> Pixels:
    try:
        return decode_image(content, size, channels, name=name)
    except FileFormatError:
        return decode_image(image, size, channels, name=name)  # raises an error that names the file


def joined(batches: Iterable[FeatureBatch], width: int, total: int, progress: OnProgress | None = None) -> Features:
    """Join batches of features of ``width`` numbers; ``total`` is the number of images, for ``progress``."""
    rows, pieces = list[int](), [np.empty((0, width), np.float32)]
    reasons, keys, done = list[str](), dict[int, bytes](), 0
    for batch in batches:
        rows += batch.rows
        pieces.append(batch.x)
        reasons += batch.broken
        keys |= batch.keys
        done += batch.images
        if progress is not None:
            progress(done, total)
    return Features(np.array(rows, dtype=np.int64), np.concatenate(pieces), tuple(reasons), keys)


def check_any(found: Features, total: int) -> Features:
    """Return ``found``; raise FileFormatError if images were broken and none of the ``total`` could be read."""
    if found.broken and len(found.broken) == total:
        raise FileFormatError(f"none of {total} images can be read; first error: {found.broken[0]}")
    return found


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
    root = Path(os.environ.get("DSAL_DATA") or Path.home() / ".cache" / "dsal").expanduser()
    return root / "onnx" / f"{fingerprint}.onnx"


@lru_cache(maxsize=4)
def _open(path: str) -> Graph | None:
    try:
        return Graph(path)
    except Exception:  # not installed, or a damaged file, for which the runtime raises many exceptions
        return None
