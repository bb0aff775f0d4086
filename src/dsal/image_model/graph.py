"""Feature extraction by ONNX Runtime, several times as fast as PyTorch on a CPU. Importable without PyTorch.

A backbone is converted the first time there are enough images to make that worthwhile, and cached by its fingerprint
under ``~/.cache/dsal/onnx`` (or ``$DSAL_DATA/onnx``). The features agree with PyTorch's to 1e-4.
"""

from __future__ import annotations

import os
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dsal.files.atomic import atomic_write

if TYPE_CHECKING:
    from dsal.backbones.backbone import Backbone

WORTH_CONVERTING = 8 * 224**2  # pixels: converting takes as long as about a dozen photographs in PyTorch
_AT_ONCE = 2 * 224**2  # pixels whose maps fit into a core's cache; eight photographs at a time take 15% longer each


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


def cached_graph(fingerprint: str) -> Graph | None:
    """Return the cached graph of a backbone; None if it was never converted or ONNX Runtime is not installed."""
    path = cached_path(fingerprint)
    return _open(str(path)) if path.is_file() else None


def graph_of(backbone: Backbone, pixels: int) -> Graph | None:
    """Return the graph of a backbone on the CPU, converted if ``pixels`` make that worthwhile; None to use PyTorch."""
    if os.environ.get("DSAL_ONNX", "1") == "0" or backbone.feature_mean.device.type != "cpu":
        return None
    if backbone.card.architecture == "onnx":
        return None  # already runs in ONNX Runtime
    fingerprint = backbone.fingerprint()
    found = cached_graph(fingerprint)
    if found is not None or pixels < WORTH_CONVERTING:
        return found
    return _convert(backbone, fingerprint)


def _convert(backbone: Backbone, fingerprint: str) -> Graph | None:
    try:
        from dsal.backbones.graphs import to_onnx

        model = to_onnx(backbone)
        graph = Graph(model)
        images = np.random.default_rng(0).integers(
            0, 256, (2, backbone.card.in_channels, backbone.card.size, backbone.card.size), dtype=np.uint8
        )
        if not _agree(backbone, graph, images):
            return None
    except Exception:  # packages are missing, or the network cannot be converted: fall back to PyTorch
        return None
    with suppress(OSError):  # an unwritable cache is not an error
        path = cached_path(fingerprint)
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic_write(path) as temporary:
            temporary.write_bytes(model)
    return graph


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
