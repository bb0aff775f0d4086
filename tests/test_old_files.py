"""Files that version 0.1 wrote are read, answer as they did, and learn on."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.datasets import load_iris
from torch import nn

from dsal import DSALClassifier
from dsal.backbones.hub import wrap_module
from dsal.files.store import load_tensors, save_tensors
from dsal.image_model import ImageModel
from dsal.image_model.reader import ImageReader, read_facts

FOLDER = Path(__file__).parent / "samples" / "version-0.1"
ANSWERS = json.loads((FOLDER / "answers.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", ["classifier", "classifier-without-learning"])
def test_classifiers(name: str) -> None:
    x, y = load_iris(return_X_y=True)
    model = DSALClassifier.load(FOLDER / f"{name}.safetensors")
    np.testing.assert_allclose(model.logits(x[::30]), ANSWERS["classifier"], rtol=1e-9)
    assert model.learns_on == (name == "classifier")
    if model.learns_on:
        assert model.partial_fit(x, y).n_phases_ == 3


def test_image_models() -> None:
    network = nn.Sequential(nn.Conv2d(3, 4, 3, bias=False), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    network[0].weight.data = torch.linspace(-1, 1, 108).view(4, 3, 3, 3)
    backbone = wrap_module(network, size=32, in_channels=3, mean=(0.5,) * 3, std=(0.25,) * 3)
    model = ImageModel.load(FOLDER / "image-model.dsal", backbone)
    expected = ANSWERS["image model"]
    assert list(model.classes) == expected["classes"]
    assert model.counts == expected["counts"]
    np.testing.assert_allclose(model.classifier.logits(np.ones((1, 4), np.float32)), expected["logits"], rtol=1e-9)
    image = np.random.default_rng(0).integers(0, 255, (32, 32, 3), dtype=np.uint8)
    assert model.predict([image])[0].label in model.classes
    model.learn(([image, 255 - image], ["new", "new"]))
    assert model.counts["new"] == 2


def test_image_models_whose_metadata_lack_what_version_0_1_did_not_write(tmp_path: Path) -> None:
    images = list(np.random.default_rng(0).integers(0, 255, (4, 32, 32, 3), dtype=np.uint8))
    model = ImageModel("cifar100-resnet32", DSALClassifier(expansion_size=8))
    model.learn((images, ["a", "a", "b", "b"]))
    model.save(tmp_path / "new.dsal")
    arrays, facts = load_tensors(tmp_path / "new.dsal", kind="image model")
    later = ("counts", "compensation", "temperature", "history", "left_out", "notes")
    old = {name: value for name, value in facts.items() if name not in later}
    arrays = {name: array for name, array in arrays.items() if not name.startswith(("seen.", "history."))}
    save_tensors(tmp_path / "old.dsal", arrays, old)
    assert read_facts(tmp_path / "old.dsal")["counts"] == {"a": 2, "b": 2}
    assert ImageReader.load(tmp_path / "old.dsal") is None  # answering takes PyTorch
    answers = [ImageModel.load(tmp_path / name).predict(images) for name in ("old.dsal", "new.dsal")]
    assert answers[0] == answers[1]
