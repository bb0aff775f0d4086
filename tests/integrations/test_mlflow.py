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
from tests.docs.pages import ROOT, python_blocks

from dsal import DSALClassifier, ImageModel
from dsal.backbones import Backbone
from dsal.errors import InputError

pytestmark = pytest.mark.slow
mlflow = pytest.importorskip("mlflow", reason="pip install 'dsal-learn[mlflow]' in an environment of its own")
X, Y = load_digits(return_X_y=True)


def test_what_the_page_shows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    exec("\n".join(python_blocks(ROOT / "docs/integrations/mlflow.md")), {})


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


def test_the_scoring_server(tmp_path: Path) -> None:
    """`mlflow models serve`, as other programs call it."""
    from dsal.integrations import mlflow as flavour

    model = DSALClassifier(expansion_size=64).fit(X, Y)
    flavour.save_model(model, tmp_path / "model", example=X[:3])
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = ["models", "serve", "-m", tmp_path / "model", "--env-manager", "local", "-h", "127.0.0.1", "-p", port]
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    server = subprocess.Popen(
        [sys.executable, "-m", "mlflow", *map(str, command), "--workers", "1"], env={**os.environ, "PATH": path}
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
    with pytest.raises(InputError, match="can be logged"):
        flavour.save_model(object(), tmp_path / "other")  # type: ignore[arg-type]
