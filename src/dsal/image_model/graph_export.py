"""Export an image model as one graph from pixels to logits, in ONNX or torch.export format."""

from __future__ import annotations

import json
from copy import deepcopy
from io import BytesIO
from typing import cast

import torch
from torch import Tensor, nn

from dsal.analytic.head import AnalyticHead
from dsal.backbones.backbone import Backbone
from dsal.errors import InputError
from dsal.files.atomic import StrPath, atomic_write
from dsal.image_model.model import ImageModel


class ImageGraph(nn.Module):
    """Backbone, expansion and both streams: maps uint8 images (n, c, size, size) to float32 logits (n, classes)."""

    def __init__(self, backbone: Backbone, head: AnalyticHead) -> None:
        super().__init__()
        self.backbone, self.head = backbone, head

    def forward(self, images: Tensor) -> Tensor:
        """Return logits of images that are already decoded, cropped and resized (see ``dsal.data.images.decode``)."""
        return cast(Tensor, self.head(self.backbone.extract(images)))


def to_graph(model: ImageModel) -> ImageGraph:
    """Return a copy of the model as one float32 module."""
    graph = ImageGraph(deepcopy(model.backbone), model.classifier.to_torch()).cpu().eval().requires_grad_(False)
    for tensor in (*graph.parameters(), *graph.buffers()):
        tensor.data = tensor.data.contiguous()  # files store contiguous rows, not transposed views
    return graph


def export_torch(model: ImageModel, path: StrPath) -> None:
    """Write the graph with ``torch.export``; labels and image size are in its extra file ``dsal.json``."""
    program = _program(model)
    content = BytesIO()  # torch aborts the process if it cannot write, for example on a full disk
    torch.export.save(program, content, extra_files={"dsal.json": json.dumps(_labels(model))})
    with atomic_write(path) as temporary:
        temporary.write_bytes(content.getbuffer())


def export_onnx(model: ImageModel, path: StrPath) -> None:
    """Write the graph as ONNX, input ``images``, output ``logits``; labels and image size are in its metadata.

    Raises:
        InputError: the packages that write ONNX are not installed.
    """
    try:
        import onnx
        import onnxscript  # noqa: F401  (torch would fail later, with a less clear message)
    except ImportError as error:
        raise InputError(f"exporting to ONNX needs more packages ({error}): pip install 'dsal-learn[onnx]'") from error
    exported = torch.onnx.export(
        _program(model), input_names=["images"], output_names=["logits"], dynamo=True, verbose=False
    )
    if exported is None:
        raise InputError("torch could not convert this model to ONNX")
    proto = exported.model_proto
    onnx.helper.set_model_props(proto, {name: json.dumps(value) for name, value in _labels(model).items()})
    with atomic_write(path) as temporary:
        onnx.save(proto, str(temporary))


def _program(model: ImageModel) -> torch.export.ExportedProgram:
    card = model.backbone.card
    images = torch.zeros(2, card.in_channels, card.size, card.size, dtype=torch.uint8)
    with torch.no_grad():
        return torch.export.export(
            to_graph(model), (images,), dynamic_shapes={"images": {0: torch.export.Dim("n", min=1)}}
        )


def _labels(model: ImageModel) -> dict[str, object]:
    return {"labels": list(model.classes), "size": model.backbone.card.size}
