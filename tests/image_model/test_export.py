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
from dsal.image_model.graph_export import export_onnx, export_torch, to_graph


@pytest.fixture
def model(backbone: Backbone, album: Path) -> ImageModel:
    model = ImageModel(backbone, DSALClassifier(expansion_size=256))
    model.learn(album / "first")
    model.learn(album / "second")
    return model


@pytest.fixture
def pixels(characters: DataSet) -> torch.Tensor:
    return characters.test.images[:200]


def check(model: ImageModel, pixels: torch.Tensor, outputs: list[np.ndarray]) -> None:
    """Logits, probabilities and novelty are those of the model."""
    features = model.backbone.extract(pixels).numpy()
    logits, expected = model.classifier.logits(features), model.predictor().predictor.scores(features)
    np.testing.assert_allclose(outputs[0], logits, atol=1e-4)
    assert np.array_equal(outputs[0].argmax(1), logits.argmax(1))
    np.testing.assert_allclose(outputs[1], expected.probabilities, atol=1e-3)
    difference = np.abs(outputs[2] - expected.novelty)
    assert (difference < 1e-3).mean() > 0.98  # the others are where two known images score almost the same: a step
    assert difference.max() < 0.01


def test_torch(model: ImageModel, pixels: torch.Tensor, tmp_path: Path) -> None:
    export_torch(model, tmp_path / "m.pt2")
    extra = {"dsal.json": ""}
    program = torch.export.load(tmp_path / "m.pt2", extra_files=extra).module()
    check(model, pixels, [output.numpy() for output in program(pixels)])
    assert json.loads(extra["dsal.json"]) == {"labels": list(model.classes), "size": 28}


def test_onnx(model: ImageModel, pixels: torch.Tensor, tmp_path: Path) -> None:
    runtime = pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    export_onnx(model, tmp_path / "m.onnx")
    session = runtime.InferenceSession(tmp_path / "m.onnx", providers=["CPUExecutionProvider"])
    check(model, pixels, session.run(["logits", "probabilities", "novelty"], {"images": pixels.numpy()}))
    check(model, pixels[:1], session.run(None, {"images": pixels[:1].numpy()}))
    assert json.loads(session.get_modelmeta().custom_metadata_map["labels"]) == list(model.classes)
    assert [path.name for path in tmp_path.iterdir()] == ["m.onnx"]


def test_without_a_reference_novelty_is_not_a_number(backbone: Backbone, album: Path, pixels: torch.Tensor) -> None:
    model = ImageModel(backbone, DSALClassifier(expansion_size=64))
    model.learn((sorted((album / "first" / "char 0").iterdir())[:1], ["char 0"]))
    logits, probabilities, novelty = to_graph(model)(pixels[:3])
    assert logits.shape == probabilities.shape == (3, 1)
    assert novelty.isnan().all()


def test_nothing_is_said_about_other_packages(
    model: ImageModel, tmp_path: Path, capfd: pytest.CaptureFixture[str], recwarn: pytest.WarningsRecorder
) -> None:
    pytest.importorskip("onnxscript")
    export_onnx(model, tmp_path / "m.onnx")
    assert capfd.readouterr() == ("", "")
    assert [str(warning.message) for warning in recwarn] == []


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
