"""Export an image model as one graph, from pixels to logits, probabilities and novelty: ONNX or torch.export."""

from __future__ import annotations

import json
from copy import deepcopy
from io import BytesIO

import numpy as np
import torch
from torch import Tensor, nn

from dsal.analytic.head import AnalyticHead
from dsal.backbones.backbone import Backbone
from dsal.backbones.graphs import onnx_model, traced
from dsal.errors import InputError
from dsal.files.atomic import StrPath, atomic_write
from dsal.image_model.model import ImageModel
from dsal.image_model.novelty_reference import DISTANCE_WEIGHT
from dsal.image_model.predictor import Predictor

OUTPUTS = ("logits", "probabilities", "novelty")


class ImageGraph(nn.Module):
    """Backbone, both streams and the novelty rule: uint8 images (n, c, size, size) to float32 :data:`OUTPUTS`.

    These are logits (n, classes), probabilities (n, classes) and novelty (n,), which is NaN without a reference.
    """

    def __init__(self, backbone: Backbone, head: AnalyticHead, predictor: Predictor) -> None:
        super().__init__()
        self.backbone, self.head, self.temperature = backbone, head, predictor.temperature
        self.rule = _Novelty(predictor) if predictor.reference.counts.any() else None

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Answer images that are already decoded, cropped and resized (see ``dsal.data.images.decode``)."""
        features = self.backbone.extract(images)
        z = self.head.expansion(features)
        main, logits = self.head.main_activation(z) @ self.head.main, self.head.scores(z)
        probabilities = torch.softmax(logits / self.temperature, 1)
        nothing = torch.full_like(features[:, 0], float("nan"))
        return logits, probabilities, nothing if self.rule is None else self.rule(features, main.amax(1))


class _Novelty(nn.Module):
    """:meth:`~dsal.image_model.novelty_reference.NoveltyReference.novelty` of features, as tensors."""

    mean: Tensor
    form: Tensor
    slopes: Tensor
    offsets: Tensor
    scores: Tensor
    fractions: Tensor

    def __init__(self, predictor: Predictor) -> None:
        super().__init__()
        (logit, its_spread), (distance, spread) = predictor.reference.standard
        self.weights = DISTANCE_WEIGHT / spread, -1 / its_spread  # of distance and logit in the score
        self.offset = logit / its_spread - DISTANCE_WEIGHT * distance / spread
        scores, fractions = (np.pad(part, (0, 1), "edge") for part in predictor.reference.known)  # two or more
        for name, part in (*vars(predictor.distance).items(), ("scores", scores), ("fractions", fractions)):
            self.register_buffer(name, torch.from_numpy(np.asarray(part, dtype=np.float32)))

    def forward(self, x: Tensor, logits: Tensor) -> Tensor:
        y = x - self.mean
        squared = ((y @ self.form) * y).sum(1) + (y @ self.slopes + self.offsets).amin(1)
        score = self.weights[0] * squared / x.shape[1] + self.weights[1] * logits + self.offset
        at = (score[:, None] >= self.scores).sum(1).clamp(1, len(self.scores) - 1)  # interpolate from at - 1 to at
        below, above = self.scores[at - 1], self.scores[at]
        part = ((score - below) / (above - below).clamp_min(1e-12)).clamp(0, 1)
        share = self.fractions[at - 1] + part * (self.fractions[at] - self.fractions[at - 1])
        share = torch.where(score < self.scores[0], torch.zeros_like(share), share)
        return torch.where(score > self.scores[-1], torch.ones_like(share), share)


def to_graph(model: ImageModel) -> ImageGraph:
    """Return a copy of the model as one float32 module."""
    backbone, head, predictor = deepcopy(model.backbone), model.classifier.to_torch(), model.predictor().predictor
    return ImageGraph(backbone, head, predictor).cpu().eval().requires_grad_(False)


def export_torch(model: ImageModel, path: StrPath) -> None:
    """Write the graph with ``torch.export``; labels and image size are in its extra file ``dsal.json``."""
    program = traced(to_graph(model), model.backbone.card)
    content = BytesIO()  # torch aborts the process if it cannot write, for example on a full disk
    torch.export.save(program, content, extra_files={"dsal.json": json.dumps(_labels(model))})
    with atomic_write(path) as temporary:
        temporary.write_bytes(content.getbuffer())


def export_onnx(model: ImageModel, path: StrPath) -> None:
    """Write the graph as ONNX: see :func:`onnx_content`."""
    content = onnx_content(model)
    with atomic_write(path) as temporary:
        temporary.write_bytes(content)


def onnx_content(model: ImageModel) -> bytes:
    """Return the graph as ONNX, input ``images``, outputs :data:`OUTPUTS`; labels and image size are in its metadata.

    Raises:
        InputError: the packages that write ONNX are not installed.
    """
    try:
        import onnx
        import onnxscript  # noqa: F401  (torch would fail later, with a less clear message)
    except ImportError as error:
        raise InputError(f"exporting to ONNX needs more packages ({error}): pip install 'dsal-learn[onnx]'") from error
    proto = onnx_model(traced(to_graph(model), model.backbone.card), OUTPUTS)
    onnx.helper.set_model_props(proto, {name: json.dumps(value) for name, value in _labels(model).items()})
    content: bytes = proto.SerializeToString()
    return content


def _labels(model: ImageModel) -> dict[str, object]:
    return {"labels": list(model.classes), "size": model.backbone.card.size}
