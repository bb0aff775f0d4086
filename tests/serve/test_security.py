"""Who may ask: foreign hosts, origins and paths are refused, tokens are wanted, and nothing inline runs."""

from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from starlette.testclient import TestClient

from dsal import InputError
from dsal.serve import Settings, create_app
from dsal.serve.engine.names import class_label, model_names, model_path

from .conftest import LOCAL, teach

PATHS = (
    "..", ".", "../m", "../../etc/passwd", "..%2fm", "%2e%2e%2fm", "..\\m", "/etc/passwd", "//m", "m/../m", "a/b",
    "a\\b", "C:\\m", "m\x00", "m\n", "~root", ".hidden", "m.", "m ", "", "con", "a" * 65, "m%00", "ｍ", "m:stream", "*",
)  # fmt: skip


def test_names_cannot_leave_the_folder(client: TestClient, settings: dict[str, Any]) -> None:
    ends = ("GET", "info"), ("POST", "learn"), ("POST", "predict"), ("PUT", "file"), ("GET", "file"), ("POST", "undo")
    for name in PATHS:
        with pytest.raises(InputError, match="a model's name"):
            model_path(Path("models"), name)
        for method, end in ends:
            quoted = "".join(f"%{byte:02x}" for byte in name.encode())
            answer = client.request(method, f"/api/models/{quoted}/{end}")
            assert (name, 400 <= answer.status_code < 500, list(answer.json())) == (name, True, ["error"])
    assert list(settings["folder"].parent.rglob("*")) == [settings["folder"]]


def test_files_whose_names_no_model_may_have_are_not_listed(tmp_path: Path) -> None:
    for name in ("cups", "CON", "nul.old", ".hidden"):
        (tmp_path / f"{name}.dsal").touch()
    assert model_names(tmp_path) == ["cups"]


@pytest.mark.parametrize("name", ["قطط", "ねこ", "कुत्ता", "Äpfel 2", "x" * 64])
def test_names_in_any_script(name: str, client: TestClient, album: Path, settings: dict[str, Any]) -> None:
    assert teach(client, album, "char 0", "char 37", name=name).status_code == 200
    assert (settings["folder"] / f"{name}.dsal").is_file()
    assert [one["name"] for one in client.get("/api/models").json()["models"]] == [name]
    assert client.get(f"/api/models/{name}/info").json()["name"] == name
    file = client.get(f"/api/models/{name}/file")
    disposition = file.headers["Content-Disposition"]
    assert disposition == (
        f'attachment; filename="{name}.dsal"' if name.isascii() else f"attachment; filename*=UTF-8''{quote(name)}.dsal"
    )
    assert client.put(f"/api/models/{name}%202/file", content=file.content).status_code == (
        201 if len(name) < 63 else 422
    )


def test_a_name_that_is_too_long_says_so() -> None:
    for name in ("x" * 65, "𝒳", "ね" * 64 + "こ", "\U00020000" * 63):
        with pytest.raises(InputError, match="at most 64 characters" if name != "𝒳" else "may have letters"):
            model_path(Path("models"), name)


HEADERS: tuple[tuple[dict[str, str], int], ...] = (
    ({}, 200),
    ({"Host": "localhost:8000"}, 200),
    ({"Host": "[::1]:8000"}, 200),
    ({"Host": "evil.example"}, 421),
    ({"Host": "evil.example:8000"}, 421),
    ({"Host": "127.0.0.1.evil.example"}, 421),
    ({"Host": "192.168.0.7"}, 421),
    ({"Host": "localhost@evil.example"}, 421),
    ({"Host": ""}, 421),
    ({"Origin": LOCAL}, 200),
    ({"Origin": "https://evil.example"}, 403),
    ({"Origin": "http://127.0.0.1:9999"}, 403),
    ({"Origin": "null"}, 403),
    ({"Sec-Fetch-Site": "same-origin"}, 200),
    ({"Sec-Fetch-Site": "cross-site"}, 403),
    ({"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}, 403),
)


def test_host_and_origin(client: TestClient) -> None:
    for headers, status in HEADERS:
        assert (headers, client.get("/api/models", headers=headers).status_code) == (headers, status)
        answer = client.post("/api/models/m/learn", headers=headers)
        assert answer.status_code == (status if status != 200 else 415)


def test_a_link_may_open_the_page(client: TestClient) -> None:
    headers = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}
    page = client.get("/", headers=headers)
    assert page.status_code == 200
    policy = page.headers["Content-Security-Policy"]
    assert "default-src 'none'; script-src 'self'; style-src 'self'" in policy
    assert "unsafe" not in policy
    for name in ("/", "/docs"):
        text = client.get(name).text
        assert "style=" not in text
        assert "<script>" not in text
        assert "onclick" not in text


def test_tokens(settings: dict[str, Any], album: Path) -> None:
    with TestClient(create_app(Settings(**settings, token="a-good-token")), base_url=LOCAL) as client:
        for headers in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": "a-good-token"}):
            answer = client.get("/api/models", headers=headers)
            assert (answer.status_code, answer.headers["WWW-Authenticate"]) == (401, "Bearer")
            assert client.post("/api/models/m/learn", headers=headers).status_code == 401
            assert client.get("/openapi.json", headers=headers).status_code == 401
        assert client.get("/").status_code == client.get("/metrics").status_code == 200
        assert client.get("/v2/health/ready").status_code == 200
        client.headers["Authorization"] = "Bearer a-good-token"
        assert teach(client, album, "char 0").status_code == 200
    there = Settings(**settings, host="0.0.0.0", token="a-good-token")
    with TestClient(create_app(there), base_url="http://192.168.0.7:8000") as client:
        assert client.get("/metrics").status_code == client.get("/v2/health/live").status_code == 401
        assert client.get("/metrics", headers={"Authorization": "Bearer a-good-token"}).status_code == 200
        assert client.get("/", headers={"Host": "evil.example"}).status_code == 421
    with pytest.raises(InputError, match="needs a token"):
        Settings(**settings, host="0.0.0.0")


def test_a_proxy_has_its_name(settings: dict[str, Any]) -> None:
    with TestClient(create_app(Settings(**settings, allowed_hosts=("cups.example",))), base_url=LOCAL) as client:
        headers = {"Host": "cups.example", "Origin": "https://cups.example"}
        assert client.get("/api/models", headers=headers).status_code == 200


@pytest.mark.parametrize("label", ["", "   ", "x" * 65, "two\nlines", "\x00", "\ud800", None, 3])
def test_class_names_are_text(label: object) -> None:
    with pytest.raises(InputError, match="class name"):
        class_label(label)
