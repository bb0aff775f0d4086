"""A server with a small network, in this process."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("fastapi")
pytest.importorskip("prometheus_client")
pytest.importorskip("python_multipart")
from starlette.testclient import TestClient

from dsal.serve import Settings, create_app

LOCAL = "http://127.0.0.1:8000"


@pytest.fixture(autouse=True)
def _in_pytorch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Converting the small network would take longer than all tests."""
    monkeypatch.setenv("DSAL_ONNX", "0")


@pytest.fixture
def settings(weights: Path, tmp_path: Path) -> dict[str, Any]:
    """Settings of a small server."""
    (tmp_path / "models").mkdir()
    return {
        "folder": tmp_path / "models",
        "backbone": str(weights),
        "expansion_size": 128,
        "audit_log": tmp_path / "audit.jsonl",
    }


@pytest.fixture
def client(settings: dict[str, Any]) -> Iterator[TestClient]:
    """A client of a server without models."""
    with TestClient(create_app(Settings(**settings)), base_url=LOCAL, raise_server_exceptions=False) as client:
        yield client


def files(folder: Path) -> list[tuple[str, tuple[str, bytes]]]:
    """The images of a folder as parts of a form."""
    return [("images", (path.name, path.read_bytes())) for path in sorted(folder.iterdir())]


def teach(client: TestClient, album: Path, *labels: str, name: str = "m", key: str | None = None) -> Any:
    """Teach characters of ``first``, one lesson each."""
    for label in labels:
        headers = {} if key is None else {"Idempotency-Key": key}
        answer = client.post(
            f"/api/models/{name}/learn", data={"labels": label}, files=files(album / "first" / label), headers=headers
        )
    return answer
