"""Changes that carry the version they were decided on."""

from pathlib import Path
from typing import Any

from starlette.testclient import TestClient

from dsal.image_model import ImageModel

from .conftest import teach


def version(client: TestClient) -> str:
    return str(client.get("/api/models/m/version").json()["version"])


def test_every_change_sets_a_version_and_undo_returns_to_it(
    client: TestClient, album: Path, settings: dict[str, Any]
) -> None:
    assert client.get("/api/models/m/version").json() == {"version": None}
    teach(client, album, "char 0", "char 74")
    seen = [version(client)]
    info = client.get("/api/models/m/info")
    assert info.json()["version"] == seen[0]
    assert info.headers["etag"] == f'"{seen[0]}"'
    assert client.post("/api/models/m/rename", json={"old": "char 0", "new": "a"}).status_code == 200
    seen.append(version(client))
    assert client.post("/api/models/m/undo").status_code == 200
    seen.append(version(client))
    assert seen[0] == seen[2] != seen[1]
    assert ImageModel.load(settings["folder"] / "m.dsal").version_id == seen[2]


def test_a_change_meant_for_another_version_is_refused(
    client: TestClient, album: Path, settings: dict[str, Any]
) -> None:
    teach(client, album, "char 0", "char 74")
    stale = {"If-Match": f'"{version(client)}"'}
    answer: Any = client.post("/api/models/m/rename", json={"old": "char 0", "new": "a"}, headers=stale)
    assert answer.status_code == 200
    file = settings["folder"] / "m.dsal"
    before = file.read_bytes()
    for route, body in (("undo", None), ("drop", {"label": "a"}), ("rename", {"old": "a", "new": "b"})):
        answer = client.post(f"/api/models/m/{route}", json=body, headers=stale)
        assert answer.status_code == 412
        assert "renamed" in answer.json()["error"]
        assert "nothing was done" in answer.json()["error"]
    assert file.read_bytes() == before
    fresh = {"If-Match": f'"{version(client)}"'}
    assert client.post("/api/models/m/undo", headers=fresh).status_code == 200
    assert ImageModel.load(file).classes == ("char 0", "char 74")


def test_another_program_changes_the_version(client: TestClient, album: Path, settings: dict[str, Any]) -> None:
    teach(client, album, "char 0", "char 74")
    stale = {"If-Match": f'"{version(client)}"'}
    file = settings["folder"] / "m.dsal"
    model = ImageModel.load(file)
    model.drop("char 0")
    model.save(file)
    answer = client.post("/api/models/m/undo", headers=stale)
    assert answer.status_code == 412
    assert "dropped" in answer.json()["error"]
