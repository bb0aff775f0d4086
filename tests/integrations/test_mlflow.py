"""The MLflow flavour with the real MLflow: `pip install 'dsal-learn[mlflow]'`."""

from __future__ import annotations

import base64
import json
import os
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_digits
from tests.docs.pages import ROOT, python_blocks, shown_command

from dsal import DSALClassifier, ImageModel
from dsal.backbones import Backbone
from dsal.errors import InputError
from dsal.protocol.results import read_results

pytestmark = pytest.mark.slow
mlflow = pytest.importorskip("mlflow", reason="pip install 'dsal-learn[mlflow]' in an environment of its own")
PAGE = ROOT / "docs" / "integrations" / "mlflow.md"
X, Y = load_digits(return_X_y=True)


def test_what_the_page_shows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    exec("\n".join(python_blocks(PAGE)), {})


def test_logged_loaded_and_scored(tmp_path: Path) -> None:
    from dsal.integrations import mlflow as flavour

    mlflow.set_tracking_uri(f"sqlite:///{tmp_path / 'store.db'}")
    mlflow.set_experiment(mlflow.create_experiment("digits", (tmp_path / "artifacts").as_uri()) and "digits")
    model = DSALClassifier(expansion_size=128).fit(X[:1000], Y[:1000])
    with mlflow.start_run() as run:
        mlflow.log_metric("accuracy", model.score(X[1000:], Y[1000:]))
        info = flavour.log_model(model, example=X[:3])
    assert mlflow.get_run(run.info.run_id).data.metrics["accuracy"] > 0.8
    assert info.signature.inputs.to_dict()[0]["tensor-spec"]["shape"] == (-1, 64)
    loaded = mlflow.pyfunc.load_model(info.model_uri)
    assert np.array_equal(loaded.predict(X[1000:]), model.predict(X[1000:]))
    whole = flavour.load_model(info.model_uri)
    assert isinstance(whole, DSALClassifier)
    assert np.array_equal(whole.logits(X), model.logits(X))
    whole.partial_fit(X[1000:], Y[1000:])  # learns on
    assert not list(Path(tmp_path).rglob("*.pkl"))


def test_a_run_is_logged_when_asked(tmp_path: Path) -> None:
    """The page's `dsal run --mlflow` against a tracking store on disk, read by MLflow's own client."""
    words = shown_command(PAGE, "MLFLOW_TRACKING_URI=")
    given = dict(word.split("=", 1) for word in words if word.startswith("MLFLOW_"))
    command = [sys.executable, "-m", *words[len(given) :], "--out", "one", "--no-report", "--seeds", "0,1"]
    for more in ([], ["--resume"]):  # the second time only shown and logged again
        done = subprocess.run(
            [*command, *more], cwd=tmp_path, env={**os.environ, **given}, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
    client = mlflow.MlflowClient(given["MLFLOW_TRACKING_URI"].replace("runs.db", str(tmp_path / "runs.db")))
    experiment = client.get_experiment_by_name(given["MLFLOW_EXPERIMENT_NAME"])
    logged, _ = client.search_runs([experiment.experiment_id])
    document = read_results(tmp_path / "one")
    assert logged.info.run_name == "one"
    assert logged.data.params["expansion_size"] == "1024"
    assert logged.data.metrics["last_accuracy"] == pytest.approx(document["last_accuracy"]["mean"])
    assert logged.data.metrics["last_accuracy_std"] == pytest.approx(document["last_accuracy"]["std"])
    curve = client.get_metric_history(logged.info.run_id, "phase/accuracy")
    told = [phase["accuracy"]["mean"] for phase in document["phases"]]
    assert [point.value for point in sorted(curve, key=lambda point: point.step)] == pytest.approx(told)
    assert logged.data.tags["data_sha256"] == document["provenance"]["data_sha256"]
    assert {"results.json", "phases.csv", "config.toml"} <= {f.path for f in client.list_artifacts(logged.info.run_id)}


def test_the_scoring_server(tmp_path: Path) -> None:
    """`mlflow models serve`, as other programs call it."""
    from dsal.integrations import mlflow as flavour

    model = DSALClassifier(expansion_size=64).fit(X, Y)
    flavour.save_model(model, tmp_path / "model", example=X[:3])
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    words = shown_command(PAGE, "mlflow models serve")
    words[words.index("models:/m-ID")] = str(tmp_path / "model")
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    server = subprocess.Popen(
        [sys.executable, "-m", *words, "-h", "127.0.0.1", "-p", str(port), "--workers", "1"],
        env={**os.environ, "PATH": path},
    )
    try:
        url = f"http://127.0.0.1:{port}"
        for _ in range(240):
            time.sleep(0.5)
            try:
                urllib.request.urlopen(f"{url}/ping", timeout=5)
                break
            except OSError:
                assert server.poll() is None
        body = json.dumps({"inputs": X[:5].tolist()}).encode()
        request = urllib.request.Request(f"{url}/invocations", body, {"Content-Type": "application/json"})
        answer: Any = json.load(urllib.request.urlopen(request, timeout=60))
        assert answer["predictions"] == model.predict(X[:5]).tolist()
    finally:
        server.terminate()
        server.wait(30)


def test_images_come_as_bytes_or_base64(tmp_path: Path, backbone: Backbone, album: Path) -> None:
    import pandas as pd

    from dsal.integrations import mlflow as flavour

    model = ImageModel(backbone, DSALClassifier(expansion_size=64))
    model.learn(album / "first")
    flavour.save_model(model, tmp_path / "model")
    loaded = mlflow.pyfunc.load_model(str(tmp_path / "model"))
    path = next((album / "first").rglob("*.png"))
    data = path.read_bytes()
    found = loaded.predict(pd.DataFrame({"image": [data, base64.b64encode(data).decode()]}))
    assert found["label"].tolist() == [model.predict([data])[0].label] * 2
    with pytest.raises(InputError, match="bytes or base64"):
        loaded.predict(pd.DataFrame({"image": ["/etc/passwd"]}))
    with pytest.raises(InputError, match="can be saved"):
        flavour.save_model(object(), tmp_path / "other")  # type: ignore[arg-type]
