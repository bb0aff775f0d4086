"""What is recorded, what a client may ask for, and what a model's file and the memory are protected from."""

import json
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from dsal.base import __version__
from dsal.errors import MemoryNeededError
from dsal.files.atomic import backup_path
from dsal.image_model import ImageModel
from dsal.serve import Settings, create_app
from dsal.serve.engine.snapshots import Shelf, process_bytes
from dsal.serve.http_errors import Refusal

from .conftest import LOCAL, files, teach
from .test_versions import version


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_a_line_for_every_change(client: TestClient, album: Path, settings: dict[str, Any]) -> None:
    teach(client, album, "char 0", "char 37", key=None)
    versions = [version(client)]
    client.post("/api/models/m/rename", json={"old": "char 0", "new": "zero"}, headers={"Idempotency-Key": "k"})
    client.post("/api/models/m/rename", json={"old": "char 0", "new": "zero"}, headers={"Idempotency-Key": "k"})
    versions.append(version(client))
    client.post("/api/models/m/undo")
    client.post("/api/models/m/rename", json={"old": "nobody", "new": "x"})
    data = client.get("/api/models/m/file").content
    assert client.put("/api/models/copy/file", content=data).status_code == 201
    assert client.delete("/api/models/copy").status_code == 200
    found = lines(settings["audit_log"])
    assert [(line["model"], line["change"].split()[0].strip(":")) for line in found] == [
        *[("m", "learned")] * 2, ("m", "renamed"), ("m", "undone"), ("copy", "uploaded"), ("copy", "deleted"),
    ]  # fmt: skip
    assert [line["version"] for line in found[1:]] == [versions[0], versions[1], *[versions[0]] * 3]
    assert {line["client"] for line in found} == {"testclient"}
    assert all(line["time"].endswith("+00:00") for line in found)


def test_a_line_for_every_request(settings: dict[str, Any], album: Path, tmp_path: Path) -> None:
    token, log = "a-long-token", tmp_path / "access.jsonl"
    chosen = Settings(**settings, token=token, access_log=log, proxies=("testclient",))
    headers = {"Authorization": f"Bearer {token}", "X-Forwarded-For": "1.2.3.4, 10.0.0.9"}
    with TestClient(create_app(chosen), base_url=LOCAL, headers=headers) as client:
        answer = client.post("/api/models/m/predict?top_k=3", files=files(album / "first" / "char 0"))
        assert answer.status_code == 404
        assert client.get("/api/models", headers={"Authorization": "x", "X-Forwarded-For": "\nx"}).status_code == 401
    first, second = lines(log)
    assert {name: first[name] for name in ("client", "method", "path", "status")} == {
        "client": "10.0.0.9", "method": "POST", "path": "/api/models/m/predict", "status": 404,
    }  # fmt: skip
    assert first["received"] == int(answer.request.headers["content-length"])
    assert first["sent"] == len(answer.content)
    assert second["client"] == "testclient"
    assert token not in log.read_text()


def test_only_a_trusted_proxy_names_the_client(settings: dict[str, Any], album: Path) -> None:
    with TestClient(create_app(Settings(**{**settings, "audit_log": None})), base_url=LOCAL) as client:
        client.headers["X-Forwarded-For"] = "10.0.0.9"
        teach(client, album, "char 0")
    assert [line["client"] for line in lines(settings["folder"] / ".audit.jsonl")] == ["testclient"]


def test_a_client_that_asks_too_often(settings: dict[str, Any]) -> None:
    chosen = Settings(**settings, max_rate=0.5, proxies=("testclient",))
    with TestClient(create_app(chosen), base_url=LOCAL) as client:

        def statuses(address: str, count: int) -> list[int]:
            return [client.get("/v2", headers={"X-Forwarded-For": address}).status_code for _ in range(count)]

        assert statuses("10.0.0.1", 7) == [200] * 5 + [429] * 2  # ten seconds' worth
        assert statuses("10.0.0.2", 2) == [200, 200]
        assert statuses("2001:db8::1", 5) == [200] * 5
        assert statuses("2001:db8::2", 1) == [429]  # the same network
        answer = client.get("/v2", headers={"X-Forwarded-For": "10.0.0.1"})
        assert answer.headers["Retry-After"] in ("1", "2")
        assert client.get("/v2/health/live", headers={"X-Forwarded-For": "10.0.0.1"}).status_code == 200


def test_what_may_pass_says_when() -> None:
    assert [Refusal(status, "").retry_after for status in (429, 503, 422)] == [5, 5, None]


def test_a_full_disk_says_when(
    client: TestClient, album: Path, settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*arguments: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(ImageModel, "save", full)
    answer = teach(client, album, "char 0")
    assert (answer.status_code, answer.headers["Retry-After"]) == (507, "60")


def test_a_file_of_another_version_is_kept(client: TestClient, album: Path, settings: dict[str, Any]) -> None:
    path = settings["folder"] / "m.dsal"
    teach(client, album, "char 0")
    assert not backup_path(path).exists()
    model = ImageModel.load(path)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("dsal.image_model.stored_model.__version__", "0.0.1")
        model.save(path)
    before = path.read_bytes()
    for label in ("char 37", "char 74"):  # only the first lesson finds the old version
        assert teach(client, album, label).status_code == 200
        assert backup_path(path).read_bytes() == before
    assert ImageModel.load(backup_path(path)).version == "0.0.1"
    assert ImageModel.load(path).version == __version__
    assert client.get("/api/models").json()["models"][0]["name"] == "m"
    assert client.delete("/api/models/m").status_code == 200
    assert not backup_path(path).exists()


def test_memory_is_promised_once() -> None:
    free = 100 * 2**20
    shelf = Shelf(process_bytes() + free)
    with shelf.room(free // 2, "this"), pytest.MonkeyPatch.context() as patch:
        patch.setattr("dsal.serve.engine.snapshots._PATIENCE", 0.1)
        with pytest.raises(MemoryNeededError, match="more than the server has left"), shelf.room(free, "that"):
            pass
    with shelf.room(free // 2, "that"):
        pass
    shelf = Shelf(process_bytes() // 2)  # an empty server takes more than it may
    with shelf.room(shelf.share, "this"):
        pass


def test_little_memory(settings: dict[str, Any], album: Path) -> None:
    """Images, uploads and lessons are refused when they would not fit, and say so."""
    chosen = Settings(**{**settings, "expansion_size": 8192}, memory=2**29)
    assert chosen.pixels * 12 < 2**29 / 5
    with TestClient(create_app(chosen), base_url=LOCAL) as client:
        answer = teach(client, album, "char 0")
        assert (answer.status_code, answer.headers["Retry-After"]) == (503, "60")
        assert "--memory" in answer.json()["error"]
        upload = client.build_request("PUT", "/api/models/x/file", content=b"")
        upload.headers["Content-Length"] = str(2**28)
        assert client.send(upload).status_code == 413
        assert client.get("/api/models").json()["limits"]["max_pixels"] == chosen.pixels
