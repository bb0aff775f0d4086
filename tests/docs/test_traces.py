"""The traces of docs/architecture.md: each is run, and its functions are called in the order of the page."""

from __future__ import annotations

import inspect
import re
import sys
import threading
from collections.abc import Callable
from importlib import import_module
from operator import attrgetter
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import numpy as np
import pytest
from tests.data.cifar_files import dump_as_python3, write_folder
from typer.testing import CliRunner

from dsal import DSALClassifier
from dsal.backbones import Backbone, Card, save_backbone
from dsal.cli import compare
from dsal.cli.main import app
from dsal.data.sets.cifar import CIFAR100

PAGE = Path(__file__).parents[2] / "docs" / "architecture.md"
HOP = re.compile(r"`(dsal(?:\.\w+)+):([\w.]+)`")


def hops(title: str) -> list[str]:
    """The functions that a trace names, in order."""
    (section,) = re.findall(rf"^### {re.escape(title)}\n(.*?)(?=^##)", PAGE.read_text(encoding="utf-8"), re.S | re.M)
    lines = re.findall(r"^(\d+)\. ", section, re.M)
    assert lines == [str(number) for number in range(1, len(lines) + 1)]
    return [f"{module}:{name}" for module, name in HOP.findall(section)]


def code_of(hop: str) -> CodeType:
    module, name = hop.split(":")
    code: CodeType = inspect.unwrap(attrgetter(name)(import_module(module))).__code__
    return code


def check(title: str, run: Callable[[], object]) -> None:
    """Run something; fail if it does not call the functions of a trace in their order, on any of its threads."""
    expected = hops(title)
    assert len(expected) >= 8
    ahead = [code_of(hop) for hop in expected]

    def follow(frame: FrameType, event: str, _: Any) -> None:
        if ahead and frame.f_code is ahead[0]:
            del ahead[0]
        if not ahead:
            sys.settrace(None)  # the rest runs at full speed

    threading.settrace(follow)
    sys.settrace(follow)
    try:
        run()
    finally:
        sys.settrace(None)
        threading.settrace(None)  # type: ignore[arg-type]
    assert not ahead, f"{title}: {expected[-len(ahead)]} is not called after the hops before it"


def dsal(*arguments: object) -> None:
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert result.exit_code == 0, result.output


def test_run(sample_file: Path, tmp_path: Path) -> None:
    options = ("--phases", 2, "--expansion-size", 32, "--out", tmp_path / "run")
    check("`dsal run`", lambda: dsal("run", "--dataset", sample_file, *options))


def test_learn(album: Path, weights: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DSAL_ONNX", "0")
    options = ("--model", tmp_path / "m.dsal", "--backbone", weights, "--expansion-size", 32)
    check("`dsal learn`", lambda: dsal("learn", album / "second", *options))


def test_partial_fit() -> None:
    x, y = np.random.default_rng(0).standard_normal((20, 4)), np.arange(20) % 2
    check("`partial_fit`", lambda: DSALClassifier(expansion_size=16).partial_fit(x, y))


def test_a_prediction_over_http(album: Path, weights: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("fastapi", "prometheus_client", "python_multipart"):
        pytest.importorskip(name)
    from starlette.testclient import TestClient

    from dsal.serve import Settings, create_app

    monkeypatch.setenv("DSAL_ONNX", "0")
    options = ("--backbone", weights, "--expansion-size", 32)
    dsal("learn", album / "second", "--model", tmp_path / "m.dsal", *options)
    image = next((album / "second").glob("*/*.png"))

    def predict() -> None:
        with TestClient(create_app(Settings(folder=tmp_path)), base_url="http://127.0.0.1:8000") as client:
            answer = client.post("/api/models/m/predict", files=[("images", (image.name, image.read_bytes()))])
        assert answer.status_code == 200, answer.text

    check("A prediction over HTTP", predict)


def test_lwf_through_compare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The runs happen in this process instead of one of their own, so that they can be followed."""
    monkeypatch.setattr(compare, "run_child", lambda arguments: dsal(*arguments))
    write_folder(tmp_path, CIFAR100, dump_as_python3, rows=200)
    seen, grey = tuple(range(50)), (0.5,) * 3
    card = Card(
        architecture="resnet32", dataset="cifar100", seen_classes=seen, in_channels=3, size=8, mean=grey, std=grey
    )
    save_backbone(tmp_path / "w.safetensors", Backbone(card))
    (tmp_path / "c.toml").write_text(
        f'dataset = "cifar100"\nbackbone = "{tmp_path}/w.safetensors"\nphases = [1]\ntune = false\nmethods = ["lwf"]\n'
        "[method]\nepochs = 1\nadapt-epochs = 0\nbatch-size = 50\n"
    )
    options = ("--data-root", tmp_path, "--out", tmp_path / "out", "--no-report")
    check("LwF through `dsal compare`", lambda: dsal("compare", "--config", tmp_path / "c.toml", *options))
