"""Under which address other machines reach the page."""

from ipaddress import ip_address
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from dsal.errors import InputError
from dsal.serve import Settings, create_app
from dsal.serve.address import lan_address, page_address, phone_address
from dsal.serve.server import listen

from .conftest import LOCAL
from .test_qr_code import text_of

TOKEN = "a-good-token"


def test_an_address_that_a_phone_can_open() -> None:
    """Not 0.0.0.0, which no other machine can open."""
    lan = lan_address()
    assert lan is None or not (ip_address(lan).is_loopback or ip_address(lan).is_unspecified)
    here = lan or "127.0.0.1"
    everywhere = Settings(folder=Path(), host="0.0.0.0", token=TOKEN)
    assert page_address(everywhere, 8000, with_token=True) == f"http://{here}:8000/#token={TOKEN}"
    assert phone_address(everywhere, "http://127.0.0.1:8000") == (lan and f"http://{lan}:8000/#token={TOKEN}")
    one = Settings(folder=Path(), host="192.168.0.7", token=TOKEN, ssl_certfile=Path("a.pem"))
    assert page_address(one, 8443, with_token=False) == "https://192.168.0.7:8443/"
    assert phone_address(one, "https://localhost:8443") == f"https://192.168.0.7:8443/#token={TOKEN}"
    six = Settings(folder=Path(), host="fd00::2", token=TOKEN)
    assert page_address(six, 80, with_token=False) == "http://[fd00::2]:80/"
    assert phone_address(Settings(folder=Path()), "http://127.0.0.1:8000") is None


def test_the_page_gets_the_address_and_its_code(client: TestClient, settings: dict[str, Any]) -> None:
    assert client.get("/api/phone", params={"page": LOCAL}).json() == {"url": None, "qr": []}
    for wrong in ("javascript:alert(1)", "http://a/b", "http://a@b", "http://", "http://" + "a" * 200):
        assert client.get("/api/phone", params={"page": wrong}).status_code == 422
    there = Settings(**settings, host="0.0.0.0", token=TOKEN)
    page = "http://192.168.0.7:8000"
    with TestClient(create_app(there), base_url=page, headers={"Authorization": f"Bearer {TOKEN}"}) as other:
        answer = other.get("/api/phone", params={"page": page}).json()
        assert answer["url"] == f"{page}/#token={TOKEN}"
        assert text_of(answer["qr"]) == answer["url"]
        assert other.get("/api/phone", params={"page": page}, headers={"Authorization": ""}).status_code == 401


def test_a_certificate_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    (tmp_path / "not.pem").write_text("no certificate")
    for path in (tmp_path / "not.pem", tmp_path / "missing.pem"):
        with pytest.raises(InputError, match=path.name):
            listen(Settings(folder=tmp_path, port=0, ssl_certfile=path))
    with pytest.raises(InputError, match="needs its certificate"):
        Settings(folder=tmp_path, ssl_keyfile=tmp_path / "key.pem")


@pytest.mark.parametrize("page", ["http://::", "http://[", "http://a:99999"])
def test_what_is_no_address_is_refused(page: str) -> None:
    with pytest.raises(InputError, match="page must be an address"):
        phone_address(Settings(folder=Path()), page)
