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
from dsal.images import ImageModel

FOLDER = Path(__file__).parent / "data" / "version-0.1"
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
