"""The routes of the ML backend in this process, images from a file server; test_label_studio.py has the real one."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.parse import quote

import numpy as np
import pytest

pytest.importorskip("fastapi")
from starlette.testclient import TestClient

from dsal import ImageModel
from dsal.backbones import Backbone
from dsal.errors import InputError
from dsal.integrations.label_studio import Config, label_studio_routes
from dsal.integrations.label_studio_client import LabelStudio
from dsal.serve import Settings, create_app
from dsal.serve.http_errors import Refusal

TOKEN, LABELS = "a token of some length", ("char 0", "char 37", "char 74")
CONFIG = '<View><Image name="i" value="$image"/><Choices name="kind" toName="i">{}</Choices></View>'.format(
    "".join(f'<Choice value="{label}"/>' for label in LABELS)
)
PROJECT = {"id": 1, "label_config": CONFIG}


@pytest.fixture(scope="module")
def files(album: Path) -> Iterator[str]:
    """The address of a server of the album's files."""
    handler = partial(SimpleHTTPRequestHandler, directory=str(album))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.fixture
def client(weights: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, files: str) -> Iterator[TestClient]:
    monkeypatch.setenv("DSAL_ONNX", "0")
    (tmp_path / "models").mkdir()
    settings = Settings(folder=tmp_path / "models", backbone=str(weights), expansion_size=64, token=TOKEN)
    app = create_app(settings, [label_studio_routes(files, None)])
    with TestClient(app, base_url="http://127.0.0.1:8000") as client:
        client.auth = ("anybody", TOKEN)
        yield client


def task(number: int, path: Path) -> dict[str, Any]:
    return {"id": number, "data": {"image": "/" + quote("/".join(path.parts[-3:]))}}


def event(client: TestClient, action: str, **more: Any) -> Any:
    answer = client.post("/label-studio/m/webhook", json={"action": action, "project": PROJECT, **more})
    assert answer.status_code == 200, answer.text
    return answer.json()["changed"]


def annotated(number: int, label: str, **more: Any) -> dict[str, Any]:
    region = {"from_name": "kind", "to_name": "i", "type": "choices", "value": {"choices": [label]}}
    return {"id": number, "result": [region], **more}


def predictions(client: TestClient, tasks: list[dict[str, Any]]) -> list[dict[str, Any]]:
    answer = client.post("/label-studio/m/predict", json={"tasks": tasks, "label_config": CONFIG, "project": "1.0"})
    assert answer.status_code == 200, answer.text
    return answer.json()["results"]  # type: ignore[no-any-return]


def test_lessons_follow_annotations(client: TestClient, album: Path, tmp_path: Path, backbone: Backbone) -> None:
    paths = [path for label in LABELS for path in sorted((album / "first" / label).iterdir())[:4]]
    tasks = [task(number, path) for number, path in enumerate(paths)]
    labels = [path.parent.name for path in paths]
    assert client.get("/label-studio/m/health").json()["status"] == "UP"
    assert client.post("/label-studio/m/setup", json={"schema": CONFIG}).json() == {"model_version": "untaught"}
    for number in (0, 4, 8, 1, 5, 9):
        assert predictions(client, tasks[:1])[0]["result"] == [] or number not in (0, 4)
        created = {"task": tasks[number], "annotation": annotated(100 + number, labels[number])}
        assert event(client, "ANNOTATION_CREATED", **created) == 1
        assert event(client, "ANNOTATION_CREATED", **created) == 0  # learned once
    found = predictions(client, [*tasks, {"id": 99, "data": {"image": "http://elsewhere.example/a.png"}}])
    assert found[-1]["result"] == []  # no other address is contacted
    model = ImageModel.load(tmp_path / "models" / "m.dsal")
    own = [model.predict([path.read_bytes()])[0] for path in paths]
    assert [one["result"][0]["value"]["choices"][0] for one in found[:-1]] == [one.label for one in own]
    assert [one["result"][0]["score"] for one in found[:-1]] == pytest.approx([one.score for one in own], abs=1e-5)
    inside = {"id": 98, "data": {"image": "data:image/png;base64," + base64.b64encode(paths[0].read_bytes()).decode()}}
    assert predictions(client, [inside])[0]["result"][0]["value"] == found[0]["result"][0]["value"]
    kept = {"action": "ANNOTATION_CREATED", "project": PROJECT, "task": inside, "annotation": annotated(98, "char 0")}
    assert client.post("/label-studio/m/webhook", json=kept).status_code == 422  # the model would keep the image
    assert (found[4]["result"][0]["from_name"], found[4]["result"][0]["to_name"]) == ("kind", "i")
    assert event(client, "ANNOTATION_UPDATED", task=tasks[1], annotation=annotated(101, "char 74")) == 1
    assert event(client, "ANNOTATION_CREATED", task=tasks[5], annotation=annotated(500, "char 0")) == 1  # the newest
    assert event(client, "ANNOTATIONS_DELETED", annotations=[{"id": 500}, {"id": 109}, {"id": 12345}]) == 2
    assert (
        event(client, "ANNOTATION_CREATED", task=tasks[2], annotation=annotated(7, "char 0", was_cancelled=True)) == 0
    )
    assert event(client, "TASKS_CREATED", tasks=[{"id": 3}]) == 0

    expected = ImageModel(backbone, expansion_size=64)
    for number, label in {0: "char 0", 4: "char 37", 8: "char 74", 1: "char 74", 5: "char 37"}.items():
        expected.learn(([paths[number].read_bytes()], [label]))
    model = ImageModel.load(tmp_path / "models" / "m.dsal")
    assert model.counts == expected.counts
    ours, theirs = (one.classifier.coef_main_[:, np.argsort(one.classes)] for one in (model, expected))
    assert np.abs(ours - theirs).max() < 1e-8
    event(client, "ANNOTATIONS_DELETED", annotations=[{"id": 100 + number} for number in range(12)])
    assert not (tmp_path / "models" / "m.dsal").exists()  # nothing is left
    assert predictions(client, tasks[:1]) == [{"result": [], "score": 0.0}]


def test_the_token_is_the_password(client: TestClient) -> None:
    for auth, status in ((("x", TOKEN), 200), (("x", "another token"), 401), (("x", ""), 401)):
        assert client.get("/label-studio/m/health", auth=auth).status_code == status
    client.auth = None
    assert client.get("/label-studio/m/health", headers={"Authorization": "Basic !!!"}).status_code == 401
    assert client.get("/label-studio/m/health", headers={"Authorization": f"Bearer {TOKEN}"}).status_code == 200
    assert client.get("/label-studio/m/health").status_code == 401


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("predict", []),
        ("predict", {"tasks": [1], "label_config": CONFIG}),
        ("predict", {"tasks": [], "label_config": "<View>"}),
        ("setup", {"schema": '<!DOCTYPE a [<!ENTITY b "c">]><View/>'}),
        ("setup", {"schema": '<View><Choices name="a" toName="b"/></View>'}),
        ("webhook", {"action": "ANNOTATION_CREATED"}),
        ("train", {"project": "x"}),
    ],
)
def test_what_is_not_the_protocol_is_refused(client: TestClient, path: str, body: Any) -> None:
    answer = client.post(f"/label-studio/m/{path}", json=body)
    assert answer.status_code == 422, answer.text


async def _image(address: str, url: str) -> bytes:
    return await LabelStudio(address, None, 1000).image(url)


def test_only_this_label_studio_is_read() -> None:
    import asyncio

    for url in ("http://elsewhere.example/a", "//elsewhere.example/a", "file:///etc/passwd", "http://127.0.0.1:10/a"):
        with pytest.raises(Refusal, match="only"):
            asyncio.run(_image("http://127.0.0.1:9", url))
    with pytest.raises(Refusal, match="did not answer"):
        asyncio.run(_image("http://127.0.0.1:9", "/data/upload/a.png"))
    with pytest.raises(InputError, match="must be like"):
        LabelStudio("ftp://x", None, 1)
    assert Config.parse(CONFIG).labels == frozenset(LABELS)
