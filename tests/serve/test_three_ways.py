"""The same images taught in Python, by ``dsal learn`` and over HTTP: the same model and the same answers, bit for bit.

All three extract features by the runtime that they use in earnest, ONNX Runtime.
"""

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from starlette.testclient import TestClient

from dsal.backbones import load_backbone
from dsal.cli.main import main
from dsal.data.images.labelled_files import read_files
from dsal.files.tensors import load_tensors
from dsal.image_model import ImageModel, graph_features
from dsal.image_model.image_predictor import ImagePredictor
from dsal.serve import Settings, create_app

from .conftest import LOCAL

pytest.importorskip("onnxruntime")
pytest.importorskip("onnxscript")


@pytest.fixture(scope="module")
def converted(weights: Path) -> bytes:
    from dsal.backbones.graphs import to_onnx

    return to_onnx(load_backbone(weights))


@pytest.fixture(autouse=True)
def _in_onnx_runtime(weights: Path, converted: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DSAL_ONNX", "1")
    monkeypatch.setenv("DSAL_DATA", str(tmp_path / "cache"))
    path = graph_features.cached_path(load_backbone(weights).fingerprint())
    path.parent.mkdir(parents=True)
    path.write_bytes(converted)


def call(monkeypatch: pytest.MonkeyPatch, *arguments: object) -> None:
    monkeypatch.setattr(sys, "argv", ["dsal", *map(str, arguments)])
    with pytest.raises(SystemExit) as ended:
        main()
    assert not ended.value.code


def record(answer: Any) -> tuple[Any, ...]:
    """An answer of any of the three, as numbers and names that can be compared."""
    if isinstance(answer, dict):
        return answer["label"], answer["score"], [tuple(r.values()) for r in answer["top_k"]], answer["novelty"]
    return answer.label, answer.score, list(answer.top_k), answer.novelty


def test_three_ways_to_the_same_model(
    settings: dict[str, Any],
    weights: Path,
    album: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    files = tmp_path / "python.dsal", tmp_path / "cli.dsal", settings["folder"] / "http.dsal"
    paths = read_files(album / "test").paths
    by_python, by_cli, by_http = [], [], []
    model = ImageModel(load_backbone(weights), expansion_size=128)
    for lesson in ("first", "second"):
        model.learn(album / lesson)
        new = () if files[1].exists() else ("--backbone", weights, "--expansion-size", 128)
        call(monkeypatch, "learn", album / lesson, "--model", files[1], *new)
    model.save(files[0])
    by_python = [record(answer) for answer in model.predict(paths, top_k=3)]
    capsys.readouterr()
    assert ImagePredictor.load(files[1]) is not None  # without PyTorch
    call(monkeypatch, "predict", files[1], album / "test", "--json", "--top-k", 3)
    by_cli = [record(answer) for answer in json.loads(capsys.readouterr().out)]
    with TestClient(create_app(Settings(**settings)), base_url=LOCAL) as client:
        for lesson in ("first", "second"):
            given = read_files(album / lesson)
            images = [("images", (path.name, path.read_bytes())) for path in given.paths]
            answer = client.post("/api/models/http/learn", data={"labels": list(given.labels)}, files=images)
            assert answer.status_code == 200, answer.text
        for some in (paths[:1], paths[1:3], paths[3:10], paths[10:]):  # batches of any size
            images = [("images", (path.name, path.read_bytes())) for path in some]
            answer = client.post("/api/models/http/predict?top_k=3", files=images)
            by_http += [record(prediction) for prediction in answer.json()["predictions"]]
    assert by_python == by_cli == by_http
    (expected, facts), *others = (load_tensors(path) for path in files)
    assert facts["classifier"]["gammas"] == [100.0, 100.0]
    for arrays, meta in others:
        assert set(arrays) == set(expected)
        for name, array in expected.items():
            assert np.array_equal(arrays[name], array), name
        assert {**meta, "notes": {}} == {**facts, "notes": {}}
