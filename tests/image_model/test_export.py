"""Exported graphs give the logits of the model."""

import json
import resource
from pathlib import Path

import numpy as np
import pytest
import torch

from dsal import DSALClassifier
from dsal.backbones import Backbone
from dsal.data import DataSet
from dsal.image_model import ImageModel
from dsal.image_model.graph_export import export_onnx, export_torch


@pytest.fixture
def model(backbone: Backbone, album: Path) -> ImageModel:
    model = ImageModel(backbone, DSALClassifier(expansion_size=256))
    model.learn(album / "first")
    model.learn(album / "second")
    return model


@pytest.fixture
def pixels(characters: DataSet) -> torch.Tensor:
    return characters.test.images[:200]


def test_torch(model: ImageModel, pixels: torch.Tensor, tmp_path: Path) -> None:
    export_torch(model, tmp_path / "m.pt2")
    extra = {"dsal.json": ""}
    program = torch.export.load(tmp_path / "m.pt2", extra_files=extra).module()
    expected = model.classifier.logits(model.backbone.extract(pixels).numpy())
    np.testing.assert_allclose(program(pixels).numpy(), expected, atol=1e-4)
    assert json.loads(extra["dsal.json"]) == {"labels": list(model.classes), "size": 28}


def test_onnx(model: ImageModel, pixels: torch.Tensor, tmp_path: Path) -> None:
    runtime = pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    export_onnx(model, tmp_path / "m.onnx")
    session = runtime.InferenceSession(tmp_path / "m.onnx", providers=["CPUExecutionProvider"])
    (logits,) = session.run(["logits"], {"images": pixels.numpy()})
    expected = model.classifier.logits(model.backbone.extract(pixels).numpy())
    np.testing.assert_allclose(logits, expected, atol=1e-4)
    assert np.array_equal(logits.argmax(1), expected.argmax(1))
    (one,) = session.run(["logits"], {"images": pixels[:1].numpy()})
    np.testing.assert_allclose(one, expected[:1], atol=1e-4)
    assert json.loads(session.get_modelmeta().custom_metadata_map["labels"]) == list(model.classes)
    assert [path.name for path in tmp_path.iterdir()] == ["m.onnx"]


def test_a_full_disk_is_an_error_and_leaves_the_old_file(model: ImageModel, tmp_path: Path) -> None:
    """A limit on the size of files stands for the full disk; torch itself would abort the process."""
    path = tmp_path / "m.pt2"
    path.write_text("old")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2**16, limits[1]))
    try:
        with pytest.raises(OSError, match="too large"):
            export_torch(model, path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]
