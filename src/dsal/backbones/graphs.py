"""Backbones as ONNX graphs: converted once for ONNX Runtime, or supplied by the user as the backbone itself."""

from __future__ import annotations

import json
import logging
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from dsal.backbones.backbone import Backbone, Card, channels_last
from dsal.backbones.foreign import check_graph
from dsal.errors import FileFormatError, InputError
from dsal.files.atomic import check_readable

NAME = "onnx"
IMAGENET_MEAN, IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


class _Features(nn.Module):
    """Images to features, as a graph."""

    def __init__(self, backbone: Backbone) -> None:
        super().__init__()
        self.backbone = backbone

    def forward(self, images: Tensor) -> Tensor:
        return self.backbone.extract(images)


def to_onnx(backbone: Backbone) -> bytes:
    """Convert the backbone to an ONNX model: ``images``, uint8 (n, c, size, size), to ``features``, float32 (n, d).

    Raises:
        ImportError: the packages that write ONNX are not installed.
        Exception: whatever torch raises for a network that it cannot convert.
    """
    import onnxscript  # noqa: F401  (torch imports it late)

    graph = _Features(deepcopy(backbone)).cpu().eval().requires_grad_(False)
    model: bytes = onnx_model(traced(graph, backbone.card), ["features"]).SerializeToString()
    return model


def traced(graph: nn.Module, card: Card) -> torch.export.ExportedProgram:
    """Trace a module on ``images``, uint8 (n, c, size, size), for any n."""
    for tensor in (*graph.parameters(), *graph.buffers()):
        tensor.data = tensor.data.contiguous()  # files store contiguous rows, not transposed views
    images = torch.zeros(2, card.in_channels, card.size, card.size, dtype=torch.uint8)
    with torch.no_grad(), quiet():
        return torch.export.export(graph, (images,), dynamic_shapes={"images": {0: torch.export.Dim("n", min=1)}})


def onnx_model(program: torch.export.ExportedProgram, outputs: Sequence[str]) -> Any:
    """Return a traced module as an ONNX model with these outputs."""
    with quiet():
        exported = torch.onnx.export(program, input_names=["images"], output_names=outputs, dynamo=True, verbose=False)
    if exported is None:
        raise InputError("torch could not convert this model to ONNX")
    return exported.model_proto


class OnnxNetwork(nn.Module):
    """A network that ONNX Runtime runs, on the CPU; its graph is a buffer, so it is saved and loaded with the model.

    Args:
        graph: the bytes of the ONNX file, as uint8 (n,).

    Raises:
        FileFormatError: see :func:`~dsal.backbones.foreign.check_graph`, which every graph goes through first.
    """

    graph: Tensor

    def __init__(self, graph: Tensor) -> None:
        super().__init__()
        self.register_buffer("graph", graph)
        content = graph.numpy().tobytes()
        check_graph(content)
        self.session = _session(content)
        self.input = self.session.get_inputs()[0]
        width = self.session.run(None, {self.input.name: self._cast(np.zeros((1, *self.shape), np.float32))})[0].shape
        self.channels: Mapping[str, int] = {"output": width[2 if len(width) == 3 else 1]}
        self.stage_ends = ("output",)

    @property
    def shape(self) -> tuple[int, int, int]:
        """(c, size, size) of the images; 3 and 224 if the graph leaves them open."""
        given = [side if isinstance(side, int) else None for side in self.input.shape]
        if len(given) != 4:
            raise InputError(f"an ONNX backbone must take images (n, c, h, w), not {self.input.shape}")
        if None not in given[2:] and given[2] != given[3]:
            raise InputError(f"an ONNX backbone must take square images, not {given[2]} x {given[3]} pixels")
        side = given[2] or given[3] or 224
        return given[1] or 3, side, side

    def maps(self, x: Tensor) -> Iterator[tuple[str, Tensor]]:
        """Yield what the graph returns for images (n, c, h, w)."""
        out = self.session.run(None, {self.input.name: self._cast(x.contiguous().numpy())})[0]
        yield "output", torch.from_numpy(out)

    def _cast(self, x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        types = {"tensor(float)": np.float32, "tensor(uint8)": np.uint8, "tensor(float16)": np.float16}
        if self.input.type not in types:
            raise InputError(f"an ONNX backbone must take float or uint8 images, not {self.input.type}")
        if self.input.type == "tensor(uint8)":
            x = x.round()  # pixels have been scaled to 0..1 and back
        return np.ascontiguousarray(x, dtype=types[self.input.type])

    def __deepcopy__(self, memo: dict[int, Any]) -> OnnxNetwork:
        return OnnxNetwork(self.graph.clone())

    def __reduce__(self) -> tuple[Any, ...]:
        return OnnxNetwork, (self.graph,)


def onnx_backbone(
    path: Path | str,
    *,
    size: int | None = None,
    mean: tuple[float, ...] | None = None,
    std: tuple[float, ...] | None = None,
) -> Backbone:
    """Load any ONNX file as a frozen backbone.

    Its graph turns images (n, c, h, w) into features (n, d), maps (n, d, h, w) or tokens (n, t, d).

    Args:
        path: the file.
        size: side of the images in pixels.
        mean: of pixels scaled to 0..1, per channel.
        std: likewise.

    Defaults come from the file's metadata (``size``, ``mean`` and ``std`` as JSON), then from the shape of its input,
    then from ImageNet's usual values. A graph that takes uint8 images gets the pixels unchanged.
    """
    try:
        content = check_readable(path).read_bytes()
    except OSError as error:
        raise InputError(f"cannot read the backbone {path}: {error.strerror}") from error
    network = OnnxNetwork(torch.frombuffer(bytearray(content), dtype=torch.uint8))
    known = _metadata(network, path)
    channels, side, _ = network.shape
    raw = network.input.type == "tensor(uint8)"
    default = ((0.0,), (1 / 255,)) if raw else (IMAGENET_MEAN, IMAGENET_STD) if channels == 3 else ((0.5,), (0.5,))

    def spread(values: Any, name: str) -> tuple[float, ...]:
        numbers = tuple(float(value) for value in values)
        if len(numbers) not in (1, channels):
            raise InputError(f"{name} must have one number for each of {channels} channels, got {len(numbers)}")
        return numbers * (channels if len(numbers) == 1 else 1)

    card = Card(
        architecture=NAME,
        in_channels=channels,
        size=int(size or known.get("size", side)),
        mean=spread(mean or known.get("mean", default[0]), "mean"),
        std=spread(std or known.get("std", default[1]), "std"),
        training={"weights": f"the file {Path(path).name}"},
    )
    return channels_last(Backbone(card, network)).eval()


def _metadata(network: OnnxNetwork, path: Path | str) -> dict[str, Any]:
    found = network.session.get_modelmeta().custom_metadata_map
    try:
        return {name: json.loads(found[name]) for name in ("size", "mean", "std") if name in found}
    except json.JSONDecodeError as error:
        raise FileFormatError(f"the metadata of {path} is not JSON: {error}") from error


def _session(content: bytes) -> Any:
    try:
        import onnxruntime
    except ImportError as error:
        raise InputError("an ONNX backbone needs the package onnxruntime: pip install 'dsal-learn[lite]'") from error
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    try:
        return onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # ONNX Runtime has its own exception for every kind of damage
        raise FileFormatError(f"this is not an ONNX model that ONNX Runtime can run: {error}") from error


@contextmanager
def quiet() -> Iterator[None]:
    """Silence the exporter's notes about missing packages, and warnings about the code of other packages."""
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)
