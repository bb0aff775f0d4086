"""The contract of DeepStack and CodeProject.AI, as Frigate and Home Assistant call it."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("fastapi")
from starlette.testclient import TestClient
from tests.docs.pages import FENCED, ROOT, shown_command

from dsal import ImageModel
from dsal.backbones import Backbone
from dsal.integrations.deepstack import DeepStack
from dsal.serve import Settings, create_app

TOKEN = "a token of some length"


@pytest.fixture
def client(weights: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, album: Path) -> Iterator[TestClient]:
    """A client of a server with a token and one model of two classes."""
    monkeypatch.setenv("DSAL_ONNX", "0")
    (tmp_path / "models").mkdir()
    settings = Settings(
        folder=tmp_path / "models", backbone=str(weights), expansion_size=128, token=TOKEN, max_body=2**20
    )
    with TestClient(DeepStack(create_app(settings), settings), base_url="http://127.0.0.1:8000") as client:
        for label in ("char 0", "char 37"):
            files = [("images", (path.name, path.read_bytes())) for path in (album / "first" / label).iterdir()]
            answer = client.post(
                "/api/models/door/learn",
                data={"labels": label},
                files=files,
                headers={"Authorization": f"Bearer {TOKEN}"},
            )
            assert answer.status_code == 200
        yield client


@pytest.mark.slow
def test_the_commands_of_the_page(tmp_path: Path, weights: Path, backbone: Backbone, album: Path) -> None:
    """A real server and curl, as the page has them; only addresses, names and files differ."""
    if shutil.which("curl") is None:
        pytest.skip("needs curl")
    page = ROOT / "docs" / "integrations" / "deepstack.md"
    (tmp_path / "models").mkdir()
    model = ImageModel(backbone, expansion_size=128)
    model.learn(album / "first")
    model.save(tmp_path / "models" / "door.dsal")
    words = [word.replace("0.0.0.0", "127.0.0.1") for word in shown_command(page, "dsal serve")]
    words += ["--port", "0", "--models", str(tmp_path / "models"), "--backbone", str(weights)]
    server = subprocess.Popen([sys.executable, "-m", *words], stdout=subprocess.PIPE, text=True)
    try:
        assert server.stdout is not None
        address = server.stdout.readline().split("#")[0].strip().rstrip("/")
        image = sorted((album / "first" / "char 37").iterdir())[0]
        change = {"photo.jpg": str(image), "http://127.0.0.1:8000": address, "NAME": "door"}
        curl = shown_command(page, "curl")
        for old, new in change.items():
            curl = [word.replace(old, new) for word in curl]
        answer = json.loads(subprocess.run([*curl, "-s"], capture_output=True, text=True, check=True).stdout)
        assert [one["label"] for one in answer["predictions"]] == ["char 37"]
        shown = json.loads(FENCED.findall(page.read_text(encoding="utf-8"))[0][1])
        assert answer.keys() == shown.keys()
        assert answer["predictions"][0].keys() == shown["predictions"][0].keys()
    finally:
        server.terminate()
        server.wait(30)


def ask(client: TestClient, path: Path, **fields: Any) -> Any:
    return client.post("/v1/vision/custom/door", data=fields, files={"image": ("a.png", path.read_bytes())})


def test_an_image_and_the_key_in_the_form(client: TestClient, album: Path) -> None:
    path = sorted((album / "test" / "char 0").iterdir())[0]
    answer = ask(client, path, api_key=TOKEN, min_confidence="0.0")
    assert answer.status_code == 200
    found = answer.json()
    assert found["success"]
    own = client.post(
        "/api/models/door/predict",
        files={"images": ("a.png", path.read_bytes())},
        headers={"Authorization": f"Bearer {TOKEN}"},
    ).json()["predictions"][0]
    if own["novel"]:
        assert found["predictions"] == []
    else:
        (one,) = found["predictions"]
        assert (one["label"], one["confidence"]) == (own["label"], own["score"])
        assert (one["x_min"], one["y_min"], one["x_max"], one["y_max"]) == (0, 0, 28, 28)
    learned = sorted((album / "first" / "char 37").iterdir())[0]
    (known,) = ask(client, learned, api_key=TOKEN).json()["predictions"]
    assert known["label"] == "char 37"
    assert ask(client, learned, api_key=TOKEN, min_confidence="1.1").json()["predictions"] == []


def test_every_check_of_the_server_applies(client: TestClient, album: Path) -> None:
    path = sorted((album / "first" / "char 0").iterdir())[0]
    for key in ("", "another token of that length"):
        answer = ask(client, path, api_key=key)
        assert (answer.status_code, answer.json()["success"]) == (401, False)
    assert ask(client, path).status_code == 401
    assert client.post("/v1/vision/custom/door", headers={"Host": "elsewhere.example"}, data={"api_key": TOKEN},
                       files={"image": path.read_bytes()}).status_code == 421  # fmt: skip
    missing = client.post("/v1/vision/custom/nobody", data={"api_key": TOKEN}, files={"image": path.read_bytes()})
    assert (missing.status_code, missing.json()["error"]) == (404, "there is no model 'nobody'")
    broken = client.post("/v1/vision/custom/door", data={"api_key": TOKEN}, files={"image": b"no image"})
    assert (broken.status_code, broken.json()["success"]) == (422, False)
    large = client.post("/v1/vision/custom/door", data={"api_key": TOKEN}, files={"image": b"x" * 2**21})
    assert large.status_code == 413
    none = client.post("/v1/vision/custom/door", data={"api_key": TOKEN})
    assert none.status_code == 400
    assert client.get("/v1/vision/custom/door").status_code in (401, 404)
    assert client.get("/api/models", headers={"Authorization": f"Bearer {TOKEN}"}).status_code == 200  # passed on
