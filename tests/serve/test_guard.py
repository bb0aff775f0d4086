"""What one request may cost: its size, its time, its values are bounded on every route, before anything is built."""

import asyncio
import base64
import json
import math
import re
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from starlette.testclient import TestClient

from dsal import InputError
from dsal.serve import Settings, create_app
from dsal.serve.http.bodies import decode_base64
from dsal.serve.http_errors import Refusal
from dsal.serve.settings import LIMITS, limits

from .conftest import LOCAL, files, teach
from .test_durability import served

JSON = {"Content-Type": "application/json"}


@contextmanager
def most_bytes(most: int) -> Iterator[None]:
    """Fail if Python and NumPy allocate more than this at a time."""
    import tracemalloc

    tracemalloc.start()
    try:
        yield
        assert tracemalloc.get_traced_memory()[1] < most
    finally:
        tracemalloc.stop()


def tensor(client: TestClient, **change: Any) -> dict[str, Any]:
    shape = [1, *client.get("/v2/models/m").json()["inputs"][0]["shape"][1:]]
    return {"name": "images", "datatype": "UINT8", "shape": shape, "data": [0] * math.prod(shape), **change}


def test_numbers_come_from_flat_lists_of_numbers(client: TestClient, album: Path) -> None:
    """An array of texts would be as wide as the longest text: 1.9 GB from 2 MB."""
    teach(client, album, "char 0")
    right = tensor(client)
    for data in (["x" * 100_000] + [""] * 783, [[0] * 784], [0.0] * 784, [None] * 784, {"0": 0}, "0" * 784):
        with most_bytes(20_000_000):
            answer = client.post("/v2/models/m/infer", json={"inputs": [{**right, "data": data}]})
        assert (answer.status_code, "flat list" in answer.json()["error"]) == (422, True)
    assert client.post("/v2/models/m/infer", json={"inputs": [right]}).status_code == 200


@pytest.mark.parametrize("end", ["api/models/m/predict", "api/models/m/learn", "v2/models/m/infer"])
def test_values_of_json_are_counted_before_they_are_built(client: TestClient, end: str) -> None:
    keys = b"{%s}" % b",".join(b'"%d":0' % number for number in range(100_000))
    lists, numbers, objects = b"[]," * 200_000, b"0," * 1_200_000, b",{}" * 200_000
    for body in (b"[%b0]" % lists, b"[%b0]" % numbers, b'[{"a":{}}%b]' % objects, keys, b'"%b"' % (b"\\n" * 1_200_000)):
        with most_bytes(4 * len(body) + 20_000_000):
            answer = client.post(f"/{end}", content=body, headers=JSON)
        assert (answer.status_code, "at most 1000000 values" in answer.json()["error"]) == (413, True)


def longest_wait(function: Callable[[], object]) -> tuple[float, float]:
    """Return the longest time for which a function keeps other threads waiting, and its own time."""
    longest, stop = 0.0, threading.Event()

    def look() -> None:
        nonlocal longest
        last = time.perf_counter()
        while not stop.is_set():
            time.sleep(0.001)
            last, before = time.perf_counter(), last
            longest = max(longest, last - before)

    looking = threading.Thread(target=look)
    looking.start()
    start = time.perf_counter()
    function()
    seconds = time.perf_counter() - start
    stop.set()
    looking.join()
    return longest, seconds


def test_other_threads_run_while_a_large_body_is_read() -> None:
    """A call that keeps Python's lock keeps the event loop waiting, whichever thread it runs in."""
    data = bytes(range(256)) * 200_000
    text = base64.b64encode(data).decode()
    assert decode_base64(text) == decode_base64(f"data:image/png;base64,{text}") == data
    waits = [longest_wait(lambda: decode_base64(text)) for _ in range(3)]
    assert min(longest / seconds for longest, seconds in waits) < 0.5
    for wrong in (text[:1000] + "==" + text[1002:], "=" + text[1:], text[:-1], text + "=", "a\nbc", "data:"):
        with pytest.raises(Refusal, match="must be base64"):
            decode_base64(wrong)


def test_large_bodies_are_read_and_written_beside_the_loop(
    client: TestClient, album: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_loop = dict[str, bool]()

    def watch(place: str, name: str) -> None:
        module = import_module(f"dsal.serve.http.{place}")
        function = getattr(module, name)

        def watched(*arguments: Any) -> Any:
            in_loop[name] = asyncio._get_running_loop() is not None
            return function(*arguments)

        monkeypatch.setattr(module, name, watched)

    for folder in ("first", "second"):
        for path in sorted((album / folder).iterdir()):
            client.post("/api/models/m/learn", data={"labels": path.name}, files=files(path))
    for place, name in (
        *(("bodies", "_from_json"), ("bodies", "decode_base64"), ("api", "_predictions")),
        *(("open_inference", "_images"), ("open_inference", "_answer")),
    ):
        watch(place, name)
    image = base64.b64encode(next((album / "first" / "char 0").iterdir()).read_bytes()).decode()
    for count in (600, 1):
        assert client.post("/api/models/m/predict", json={"images": [image] * count}).status_code == 200
        tensors = {"inputs": [tensor(client, shape=[count, 1, 28, 28], data=[0] * count * 28**2)]}
        assert client.post("/v2/models/m/infer", json=tensors).status_code == 200
        assert in_loop == dict.fromkeys(in_loop, count == 1)
        assert len(in_loop) == 5


def test_a_form_of_almost_boundaries(client: TestClient) -> None:
    """The parser would take 0.2 s for each of these megabytes."""
    head = b'--B\r\nContent-Disposition: form-data; name="images"; filename="x"\r\n\r\n'
    form = {"Content-Type": "multipart/form-data; boundary=B"}
    content = head + b"\r\n--Bx" * 1_000_000 + b"\r\n--B--\r\n"
    answer = client.post("/api/models/m/predict", content=content, headers=form)
    assert (answer.status_code, "at most 2020 parts" in answer.json()["error"]) == (413, True)


def test_outputs_are_asked_for_once(client: TestClient, album: Path) -> None:
    teach(client, album, "char 0", "char 37")
    many = {"inputs": [tensor(client)], "outputs": [{"name": "logits", "parameters": {"binary_data": True}}] * 5}
    assert client.post("/v2/models/m/infer", json=many).status_code == 422
    every = {"inputs": [tensor(client)], "id": "x" * 5000}
    answer = client.post("/v2/models/m/infer", json=every).json()
    assert [len(output["data"]) for output in answer["outputs"]] == [1, 2, 1, 2]
    assert len(answer["id"]) == 1000


@pytest.mark.parametrize("end", ["rename", "drop", "undo"])
def test_small_requests_are_small(client: TestClient, album: Path, end: str) -> None:
    teach(client, album, "char 0")
    body = json.dumps({"old": "x" * 100_000, "new": "b", "label": "x" * 100_000}).encode()

    def pieces() -> Iterator[bytes]:  # without a Content-Length
        yield from (body[start : start + 1000] for start in range(0, len(body), 1000))

    if end != "undo":  # reads no body at all
        for content in (body, pieces()):
            answer = client.post(f"/api/models/m/{end}", content=content, headers=JSON)
            assert (answer.status_code, "larger than 64 kB" in answer.json()["error"]) == (413, True)
        answer = client.post(f"/api/models/m/{end}", content=b"[" * 60_000, headers=JSON)
        assert (answer.status_code, len(answer.text) < 300) == (400, True)
        text = json.dumps({"old": "x" * 2000, "new": "b", "label": "x" * 2000}).encode()
        answer = client.post(f"/api/models/m/{end}", content=text, headers=JSON)
        assert (answer.status_code, len(answer.text) < 300) == (422, True)
        assert client.post(f"/api/models/m/{end}", content=text).status_code == 415
    assert client.post(f"/api/models/m/{end}", headers={"Content-Length": "100000"}, content=b"").status_code == 413


HEADERS: tuple[tuple[dict[str, str], int], ...] = (
    ({"Origin": "http://[::1"}, 403),
    ({"Origin": "//127.0.0.1:8000"}, 403),
    ({"Host": "127.0.0.1#.evil"}, 421),
    ({"Host": "127.0.0.1?.evil"}, 421),
    ({"Host": "[::1"}, 421),
    ({"Host": "127.0.0.1:80:80"}, 421),
    ({"Inference-Header-Content-Length": "9" * 5000}, 400),
    ({"Inference-Header-Content-Length": "²"}, 400),
)


def test_headers_that_no_parser_likes(client: TestClient, album: Path) -> None:
    teach(client, album, "char 0")
    for headers, status in HEADERS:
        raw = [(name.encode(), value.encode()) for name, value in headers.items()]
        answer = client.post("/v2/models/m/infer", content=b"{}", headers=raw)
        assert (headers, answer.status_code, list(answer.json())) == (headers, status, ["error"])
    body = b'{"inputs": [{"name": "images", "datatype": "UINT8", "shape": ["\\ud800"]}]}'
    assert client.post("/v2/models/m/infer", content=body).status_code in (400, 422)


def test_a_form_that_ends_early_teaches_nothing(client: TestClient, album: Path) -> None:
    image = next((album / "first" / "char 0").iterdir()).read_bytes()
    part = b'--B\r\nContent-Disposition: form-data; name="%s"%s\r\n\r\n%s\r\n'
    body = part % (b"labels", b"", b"a") + part % (b"images", b'; filename="x"', image)
    form = {"Content-Type": "multipart/form-data; boundary=B"}
    for torn in (body, body + b"--B", body + part % (b"images", b'; filename="y"', image[:50])):
        assert client.post("/api/models/m/learn", content=torn, headers=form).status_code == 400
    assert client.post("/api/models/m/learn", content=body + b"--B--\r\n", headers=form).json()["images"] == 1
    for extra, status in ((part % (b"labels", b"", b"x" * 5000), 413), (part % (b"other", b"", b"x") * 1012, 413)):
        content = body + extra + b"--B--\r\n"
        assert client.post("/api/models/m/learn", content=content, headers=form).status_code == status


def test_the_memory_of_bodies_is_counted_on_every_route(settings: dict[str, Any], album: Path) -> None:
    app = create_app(Settings(**settings, max_bodies=30_000))
    with TestClient(app, base_url=LOCAL, raise_server_exceptions=False) as client:
        answer = client.post("/api/models/m/rename", content=b" " * 40_000, headers=JSON)
        assert (answer.status_code, answer.headers["Retry-After"]) == (503, "2")
        assert client.post("/api/models/m/rename", content=b" " * 20_000, headers=JSON).status_code == 400
    assert app.bodies.held == 0


def raw(url: str) -> socket.socket:
    host, port = url.removeprefix("http://").split(":")
    connection = socket.create_connection((host, int(port)))
    connection.settimeout(20)
    return connection


def test_slow_clients(settings: dict[str, Any]) -> None:
    """Who sends a byte now and then, or never reads, is let go; nobody waits for him."""
    (settings["folder"] / "big.dsal").write_bytes(bytes(30_000_000))
    with served(settings, timeout=2.0, stalled=2.0, idle=2.0) as server, httpx.Client(timeout=30) as client:
        client.get(f"{server.url}/v2/health/live")
        head = "{} /api/models/m/{} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
        for method, end in (("POST", "rename"), ("POST", "drop"), ("POST", "predict"), ("PUT", "file")):
            with raw(server.url) as connection:
                connection.sendall(f"{head.format(method, end)}Content-Length: 999\r\n\r\n".encode())
                stop = threading.Event()

                def trickle(connection: socket.socket = connection, stop: threading.Event = stop) -> None:
                    for _ in range(100):
                        if stop.wait(0.2):
                            return
                        try:
                            connection.sendall(b" ")
                        except OSError:
                            return

                sender = threading.Thread(target=trickle)
                sender.start()
                start = time.monotonic()
                assert connection.recv(1000).startswith(b"HTTP/1.1 408"), (method, end)
                assert time.monotonic() - start < 10
                stop.set()
                sender.join()
        with raw(server.url) as connection:  # a download that is never read
            connection.sendall(b"GET /api/models/big/file HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
            time.sleep(5)
            got = 0
            with suppress(ConnectionError):
                while piece := connection.recv(2**20):
                    got += len(piece)
            assert got < 30_000_000
        assert not list(settings["folder"].glob(".upload*"))


def test_what_is_not_http_gets_the_same_headers(settings: dict[str, Any]) -> None:
    with served(settings) as server, raw(server.url) as connection:
        connection.sendall(b"\x16\x03\x01 hello\r\n\r\n")
        answer = b""
        while piece := connection.recv(10_000):
            answer += piece
        assert answer.startswith(b"HTTP/1.1 400")
        assert b"x-content-type-options: nosniff" in answer
        assert b'{"error": "this is not HTTP' in answer


def test_a_large_answer_is_written_beside_the_loop(client: TestClient, album: Path) -> None:
    """Row by row, in a thread: what it says is the same."""
    teach(client, album, "char 0", "char 37")
    size = client.get("/v2/models/m").json()["inputs"][0]["shape"][1:]
    images = np.random.default_rng(0).integers(0, 256, (1000, *size), dtype=np.uint8)
    head: dict[str, Any] = {"name": "images", "datatype": "UINT8", "shape": list(images.shape)}
    head["parameters"] = {"binary_data_size": images.size}

    def infer(some: Any) -> Any:
        text = json.dumps(
            {"inputs": [{**head, "shape": list(some.shape), "parameters": {"binary_data_size": some.size}}]}
        )
        headers = {"Inference-Header-Content-Length": str(len(text))}
        return client.post("/v2/models/m/infer", content=text.encode() + some.tobytes(), headers=headers).json()

    many, few = infer(images[:600]), infer(images[:5])
    for large, small in zip(many["outputs"], few["outputs"], strict=True):
        assert large["shape"][1:] == small["shape"][1:]
        if large["name"] != "label":
            np.testing.assert_allclose(large["data"][: len(small["data"])], small["data"], atol=1e-4)


def test_limits_are_settings() -> None:
    found = limits(["max-body=16MB", "max-images = 20", "timeout=2.5", "max-pixels=100k"])
    assert found == {"max_body": 2**24, "max_images": 20, "timeout": 2.5, "max_pixels": 100_000}
    for wrong in (
        "max-body",
        "max-body=",
        "max-body=-1",
        "port=3",
        "max-body=1e9",
        "max-body=9XB",
        "=",
        "max-body=inf",
    ):
        with pytest.raises(InputError):
            limits([wrong])
    for wrong_values in ({"max_images": 0}, {"timeout": 0.0}, {"max_body": 2**70}):
        with pytest.raises(InputError, match="must be at least"):
            Settings(folder=Path(), **wrong_values)


def test_the_page_of_limits_is_complete() -> None:
    """Every limit is in the table of docs/serve.md, with its default."""
    page = (Path(__file__).parents[2] / "docs" / "serve.md").read_text()
    rows = dict(re.findall(r"^\| `([a-z-]+)` \| ([^|]+) \|", page, re.MULTILINE))
    assert set(rows) >= {name.replace("_", "-") for name in LIMITS}
    for name in LIMITS:
        (value,) = limits([f"{name}={rows[name.replace('_', '-')].replace(',', '').removesuffix(' s')}"]).values()
        assert value == getattr(Settings(folder=Path()), name), name
