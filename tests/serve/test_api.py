"""The API: what it answers equals what the model answers, and what it acknowledges is on the disk."""

import base64
import math
import re
from collections import Counter
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import pytest
import torch
from starlette.testclient import TestClient

from dsal.image_model import ImageModel
from dsal.serve import Settings, create_app

from .conftest import LOCAL, files, teach


def on_disk(settings: dict[str, Any], name: str = "m") -> ImageModel:
    return ImageModel.load(settings["folder"] / f"{name}.dsal")


def test_teach_predict_correct(client: TestClient, album: Path, settings: dict[str, Any]) -> None:
    assert client.get("/api/models").json()["models"] == []
    first = teach(client, album, "char 0").json()
    assert (first["images"], first["new_classes"], first["loo_accuracy"]) == (15, ["char 0"], None)
    assert first["mistaken"] == []
    lessons = {label: teach(client, album, label).json() for label in ("char 37", "char 74")}
    model = on_disk(settings)
    assert model.counts == {"char 0": 15, "char 37": 15, "char 74": 15}

    sample = sorted((album / "test" / "char 37").iterdir())
    answer = client.post("/api/models/m/predict", files=files(album / "test" / "char 37")).json()["predictions"]
    expected = model.predict(sample)
    assert [a["label"] for a in answer] == [e.label for e in expected]
    np.testing.assert_allclose([a["score"] for a in answer], [e.score for e in expected], atol=1e-3)
    np.testing.assert_allclose([a["novelty"] for a in answer], [e.novelty for e in expected], atol=1e-3)
    encoded = [base64.b64encode(path.read_bytes()).decode() for path in sample]
    assert client.post("/api/models/m/predict", json={"images": encoded}).json()["predictions"] == answer

    info = client.get("/api/models/m/info").json()
    assert info["classes"] == model.counts
    assert {row["label"] for row in info["left_out"]} == {"char 37", "char 74"}
    assert sum(row["images"] - row["right"] for row in info["left_out"]) == sum(p["images"] for p in info["confused"])
    wrong = Counter((label, one["label"]) for label, lesson in lessons.items() for one in lesson["mistaken"])
    assert wrong == {(pair["label"], pair["taken_for"]): pair["images"] for pair in info["confused"]}

    assert client.post("/api/models/m/rename", json={"old": "char 0", "new": "<b>zero</b>"}).status_code == 200
    assert client.post("/api/models/m/drop", json={"label": "char 37"}).status_code == 200
    assert list(on_disk(settings).classes) == ["<b>zero</b>", "char 74"]
    assert client.post("/api/models/m/undo").json()["changed"] == "undone: dropped char 37"
    assert client.get("/api/models/m/info").json()["classes"] == {"<b>zero</b>": 15, "char 37": 15, "char 74": 15}


def test_the_shortcut_answers_as_fastapi_does(client: TestClient, album: Path) -> None:
    """Only requests without a query take it."""
    teach(client, album, "char 0", "char 37")
    shape = [1, *client.get("/v2/models/m").json()["inputs"][0]["shape"][1:]]
    tensor = {"name": "images", "datatype": "UINT8", "shape": shape, "data": [0] * math.prod(shape)}
    bodies: list[tuple[str, dict[str, Any]]] = [
        ("/api/models/m/predict", {"files": files(album / "test" / "char 37")}),
        ("/api/models/m/predict", {"files": [("images", ("x.png", b"not an image"))]}),
        ("/api/models/m/predict", {"json": {"images": []}}),
        ("/api/models/m/predict", {"content": b"x"}),
        ("/api/models/none/predict", {"files": files(album / "test" / "char 37")}),
        ("/api/models/..m/predict", {"files": files(album / "test" / "char 37")}),
        ("/v2/models/m/infer", {"json": {"inputs": [tensor]}}),
        ("/v2/models/m/infer", {"json": {"inputs": []}}),
    ]
    seen = []
    for path, body in bodies:
        short, long = client.post(path, **body), client.post(path, params={"unused": "1"}, **body)
        assert (short.status_code, short.content, short.headers) == (long.status_code, long.content, long.headers)
        seen.append(short.status_code)
    assert seen == [200, 422, 422, 415, 404, 422, 200, 422]
    assert client.get("/api/models/m/predict").status_code == 405
    counts = client.get("/metrics").text
    assert 'dsal_requests_total{route="/api/models/{name}/predict",status="404"} 2.0' in counts


def test_undoing_the_first_lesson_leaves_no_model(client: TestClient, album: Path, settings: dict[str, Any]) -> None:
    teach(client, album, "char 0")
    assert client.post("/api/models/m/undo").status_code == 200
    assert client.get("/api/models/m/info").status_code == 404
    assert [path.name for path in settings["folder"].iterdir()] == []


def test_a_key_counts_once_over_a_restart(client: TestClient, album: Path, settings: dict[str, Any]) -> None:
    first = teach(client, album, "char 0", key="k").json()
    again = teach(client, album, "char 0", key="k").json()
    assert again == {**first, "repeated": True}
    other = teach(client, album, "char 37", key="k")
    assert other.status_code == 422
    assert "Idempotency-Key" in other.json()["error"]
    with TestClient(create_app(Settings(**settings)), base_url=LOCAL) as restarted:
        assert teach(restarted, album, "char 0", key="k").json() == again
        assert restarted.get("/api/models/m/lessons/k").json()["outcome"]["images"] == 15
    assert on_disk(settings).counts == {"char 0": 15}


def test_the_newest_keys_are_kept(
    client: TestClient, album: Path, settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dsal.serve.engine.change_keys.MOST_KEYS", 2)
    teach(client, album, "char 0")
    for key, old, new in (("z", "char 0", "1"), ("b", "1", "2"), ("a", "2", "3")):
        headers = {"Idempotency-Key": key}
        assert client.post("/api/models/m/rename", json={"old": old, "new": new}, headers=headers).status_code == 200
    assert [client.get(f"/api/models/m/lessons/{key}").json()["state"] for key in "zba"] == [
        "none",
        "learned",
        "learned",
    ]
    model = on_disk(settings)
    model.notes["changes"] = {"not": "ours"}  # a file may come from anywhere
    model.save(settings["folder"] / "m.dsal")
    assert client.post("/api/models/m/rename", json={"old": "3", "new": "4"}, headers=headers).status_code == 200


def test_undo_with_a_key_undoes_once(client: TestClient, album: Path, settings: dict[str, Any]) -> None:
    teach(client, album, "char 0", "char 37", "char 74")
    for _ in range(2):
        assert client.post("/api/models/m/undo", headers={"Idempotency-Key": "u"}).status_code == 200
    assert list(on_disk(settings).classes) == ["char 0", "char 37"]


def test_images_seen_before_do_not_count_again(client: TestClient, album: Path, settings: dict[str, Any]) -> None:
    teach(client, album, "char 0")
    answer = teach(client, album, "char 0")
    assert (answer.status_code, answer.json()["images"], answer.json()["seen_before"]) == (200, 0, 15)
    assert on_disk(settings).counts == {"char 0": 15}


def test_a_model_that_another_program_wrote_is_read_anew(
    client: TestClient, album: Path, settings: dict[str, Any]
) -> None:
    teach(client, album, "char 0")
    model = on_disk(settings)
    model.learn(album / "second")
    model.save(settings["folder"] / "m.dsal")
    assert len(client.get("/api/models/m/info").json()["classes"]) == 4
    teach(client, album, "char 37")
    assert len(on_disk(settings).classes) == 5


def test_files_go_out_and_come_in(client: TestClient, album: Path, settings: dict[str, Any]) -> None:
    teach(client, album, "char 0", "char 37")
    content = client.get("/api/models/m/file").content
    assert content == (settings["folder"] / "m.dsal").read_bytes()
    assert client.put("/api/models/copy/file", content=content).status_code == 201
    assert client.get("/api/models/copy/info").json()["classes"] == {"char 0": 15, "char 37": 15}
    assert client.put("/api/models/copy/file", content=content).status_code == 409
    torn = client.put("/api/models/torn/file", content=content[:-1000])
    assert torn.status_code == 422
    assert torn.json()["error"].startswith("the file is not a readable safetensors file")
    assert client.delete("/api/models/copy").status_code == 200
    assert [path.name for path in settings["folder"].iterdir()] == ["m.dsal"]


def test_open_inference_protocol(client: TestClient, album: Path, settings: dict[str, Any]) -> None:
    teach(client, album, "char 0", "char 37")
    assert client.get("/v2/health/live").status_code == client.get("/v2/health/ready").status_code == 200
    assert client.get("/v2").json()["name"] == "dsal"
    assert client.get("/v2/models/m/ready").json()["ready"]
    assert client.get("/v2/models/none/ready").status_code == 404
    described = client.get("/v2/models/m").json()
    assert described["inputs"] == [{"name": "images", "datatype": "UINT8", "shape": [-1, 1, 28, 28]}]
    images = np.random.default_rng(0).integers(0, 256, (3, 1, 28, 28), dtype=np.uint8)
    request = {"inputs": [{"name": "images", "datatype": "UINT8", "shape": [3, 1, 28, 28]}]}
    as_json = {"inputs": [{**request["inputs"][0], "data": images.reshape(-1).tolist()}], "id": "7"}
    answer = client.post("/v2/models/m/infer", json=as_json).json()
    assert (answer["id"], [output["name"] for output in answer["outputs"]]) == (
        "7",
        ["label", "probabilities", "novelty", "logits"],
    )
    probabilities = np.array(answer["outputs"][1]["data"]).reshape(3, 2)
    np.testing.assert_allclose(probabilities.sum(1), 1, atol=1e-6)
    model = on_disk(settings)

    expected = model.classifier.logits(model.backbone.extract(torch.from_numpy(images)).numpy())
    np.testing.assert_allclose(np.array(answer["outputs"][3]["data"]).reshape(3, 2), expected, atol=1e-4)


def test_metrics(client: TestClient, album: Path) -> None:
    """Requests, latency, queue, batch size, lessons and memory, as Prometheus reads them."""
    teach(client, album, "char 0", key="k")
    teach(client, album, "char 0", key="k")
    client.post("/api/models/m/predict", files=files(album / "first" / "char 0"))
    client.post("/api/models/none/predict", files=files(album / "first" / "char 0"))
    text = client.get("/metrics").text
    values = {name: float(value) for name, value in re.findall(r"^([^# ]\S*) (\S+)$", text, flags=re.MULTILINE)}
    route = "/api/models/{name}/predict"
    assert values[f'dsal_requests_total{{route="{route}",status="200"}}'] == 1
    assert values[f'dsal_requests_total{{route="{route}",status="404"}}'] == 1
    assert values[f'dsal_request_seconds_count{{route="{route}"}}'] == 2
    assert values["dsal_queue_images"] == values["dsal_lessons_waiting"] == 0
    assert values["dsal_batch_images_sum"] == 30
    assert values['dsal_lessons_total{outcome="learned"}'] == values['dsal_lessons_total{outcome="repeated"}'] == 1
    assert values["dsal_lesson_images_total"] == 15
    assert values["process_resident_memory_bytes"] > 1e8


@pytest.mark.slow
def test_export(client: TestClient, album: Path) -> None:
    pytest.importorskip("onnxscript")
    runtime = pytest.importorskip("onnxruntime")
    teach(client, album, "char 0", "char 37")
    answer = client.get("/api/models/m/export?format=onnx")
    assert answer.status_code == 200
    session = runtime.InferenceSession(answer.content)
    logits = session.run(None, {"images": np.zeros((2, 1, 28, 28), np.uint8)})[0]
    assert logits.shape == (2, 2)


@pytest.mark.parametrize("name", ["قطط", "Größe 1", "कुत्ता", "猫-2"])
def test_names_of_any_script(name: str, client: TestClient, album: Path, settings: dict[str, Any]) -> None:
    assert teach(client, album, "char 0", name=quote(name)).status_code == 200
    (listed,) = client.get("/api/models").json()["models"]
    assert listed["name"] == name
    answer = client.get(f"/api/models/{quote(name)}/file")
    assert answer.headers["content-disposition"] == f"attachment; filename*=UTF-8''{quote(name)}.dsal"
    assert answer.content == (settings["folder"] / f"{name}.dsal").read_bytes()


def test_names_that_cannot_be_files(client: TestClient) -> None:
    for name, reason in (
        ("m" * 65, "at most 64 characters and 245 bytes in UTF-8, got 65 characters"),
        ("𠀀" * 64, "got 64 characters and 256 bytes"),
        ("a🙂", "may have letters, digits"),
        ("-m", "must start with a letter or digit"),
        ("m.", "must not end with a space or '.'"),
    ):
        answer = client.get(f"/api/models/{quote(name)}/info")
        assert answer.status_code == 422
        assert reason in answer.json()["error"]
