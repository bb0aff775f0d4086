"""Garbage, bombs and crowds: a 4xx with one sentence, and the model is what it was."""

import io
import threading
import time
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image
from starlette.testclient import TestClient

from dsal.data.images.formats import MOST_PIXELS
from dsal.serve import Settings, create_app
from dsal.serve.engine.runner import Runner
from dsal.serve.http_errors import Refusal

from .conftest import LOCAL, files, teach


def png(width: int, height: int) -> bytes:
    """A PNG that claims a size; its data are that of a small one."""
    buffer = io.BytesIO()
    Image.new("L", (4, 4)).save(buffer, "PNG")
    data = bytearray(buffer.getvalue())
    data[16:24] = width.to_bytes(4, "big") + height.to_bytes(4, "big")
    data[29:33] = zlib.crc32(bytes(data[12:29])).to_bytes(4, "big")
    return bytes(data)


def boundary(parts: str) -> dict[str, Any]:
    return {"content": parts.encode(), "headers": {"Content-Type": "multipart/form-data; boundary=B"}}


HOSTILE: dict[str, tuple[dict[str, Any], int, str]] = {
    "nothing": ({}, 415, "multipart/form-data"),
    "no boundary": ({"content": b"x", "headers": {"Content-Type": "multipart/form-data"}}, 400, "boundary"),
    "torn form": (boundary("--B\r\nContent-Disposition: form-data"), 400, "form"),
    "not a form": (boundary("garbage"), 400, "form"),
    "no images": ({"files": [("other", ("x", b"x"))]}, 422, "no images"),
    "garbage image": ({"files": [("images", ("x.jpg", b"\xff\xd8garbage"))]}, 422, "image 1 cannot be read"),
    "empty image": ({"files": [("images", ("x.jpg", b""))]}, 422, "image 1 cannot be read"),
    "bomb": ({"files": [("images", ("x.png", png(60000, 60000)))]}, 422, "image 1 cannot be read"),
    "large": ({"files": [("images", ("x.png", png(9000, 9000)))]}, 422, "pixels"),
    "torn image": ({"files": [("images", ("x.png", png(4, 4)[:45]))]}, 422, "image 1 cannot be read"),
    "text": ({"data": {"images": "text", "labels": "a"}, "files": [("x", ("x", b""))]}, 422, "must hold files"),
    "not JSON": ({"content": b"{", "headers": {"Content-Type": "application/json"}}, 400, "not valid JSON"),
    "deep JSON": ({"content": b"[" * 100000, "headers": {"Content-Type": "application/json"}}, 400, "not valid JSON"),
    "compressed": ({"content": b"\x1f\x8b", "headers": {"Content-Encoding": "gzip"}}, 415, "compressed"),
    "NaN": ({"content": b'{"images": NaN}', "headers": {"Content-Type": "application/json"}}, 400, "not valid JSON"),
    "wrong JSON": ({"json": {"images": "cat.jpg"}}, 422, "the body must be"),
    "a list": ({"json": [1, 2]}, 422, "the body must be"),
    "numbers": ({"json": {"images": [1], "labels": ["a"]}}, 422, "base64"),
    "not base64": ({"json": {"images": ["%%%"], "labels": ["a"]}}, 422, "base64"),
    "too many": ({"files": [("images", ("x", b"x"))] * 21, "data": {"labels": "a"}}, 413, "20 images"),
    "too large": ({"content": b"x" * 3_000_000, "headers": {"Content-Type": "application/json"}}, 413, "larger than"),
}


@pytest.fixture
def small(settings: dict[str, Any]) -> Settings:
    return Settings(**settings, max_body=2**21, max_images=20, max_pixels=10_000_000)


def test_garbage(small: Settings, album: Path) -> None:
    with TestClient(create_app(small), base_url=LOCAL, raise_server_exceptions=False) as client:
        teach(client, album, "char 0")
        before = (small.folder / "m.dsal").read_bytes()
        for what, (request, status, reason) in HOSTILE.items():
            labels = {"data": {"labels": "a"}} if "files" in request and "data" not in request else {}
            for end in ("learn", "predict"):
                answer = client.post(f"/api/models/m/{end}", **request, **labels)
                assert (what, answer.status_code) == (what, status)
                assert reason in answer.json()["error"], what
    assert (small.folder / "m.dsal").read_bytes() == before


def test_images_as_large_as_on_the_command_line(client: TestClient, album: Path, settings: dict[str, Any]) -> None:
    """50.003 megapixels were too many for the server alone."""
    teach(client, album, "char 0", "char 37")
    large = io.BytesIO()
    Image.new("1", (7072, 7071)).save(large, "PNG")
    answer = client.post("/api/models/m/predict", files=[("images", ("x", large.getvalue()))])
    assert answer.status_code == 200
    assert create_app(Settings(**settings)).settings.max_pixels == MOST_PIXELS


def test_mistakes_leave_the_model_as_it_was(client: TestClient, album: Path, settings: dict[str, Any]) -> None:
    teach(client, album, "char 0", "char 37")
    path = settings["folder"] / "m.dsal"
    before = path.read_bytes()
    some = files(album / "first" / "char 74")
    for answer, status in (
        (client.post("/api/models/m/learn", files=some), 422),
        (client.post("/api/models/m/learn", files=some, data={"labels": "x" * 100}), 422),
        (client.post("/api/models/m/learn", files=some, data={"labels": ["a", "b"]}), 422),
        (client.post("/api/models/m/learn", files=[*some, ("images", ("x", b"x"))], data={"labels": "a"}), 422),
        (client.post("/api/models/m/rename", json={"old": "char 0", "new": "char 37"}), 422),
        (client.post("/api/models/m/rename", json={"old": "none", "new": "x"}), 422),
        (client.post("/api/models/m/rename", json={"old": "char 0", "new": "a\nb"}), 422),
        (client.post("/api/models/m/rename", json={"old": 1}), 422),
        (client.post("/api/models/m/drop", json={"label": "none"}), 422),
        (client.post("/api/models/none/undo"), 404),
        (client.post("/api/models/none/predict", files=some), 404),
        (client.post("/api/models/m/predict?top_k=0", files=some), 422),
        (client.post("/api/models/m/predict?threshold=nan", files=some), 422),
        (client.post("/api/models/m/learn", files=some, data={"labels": "a"}, headers={"Idempotency-Key": ""}), 422),
        (client.delete("/api/models/m/lessons/none"), 404),
        (client.get("/api/models/m/export?format=exe"), 422),
        (client.get("/nowhere"), 404),
        (client.patch("/api/models"), 405),
        (client.put("/api/models/new/file", content=b"\x80\x04K\x01."), 422),
    ):
        assert (answer.status_code, list(answer.json())) == (status, ["error"])
        assert "\n" not in answer.json()["error"]
    assert path.read_bytes() == before
    assert [entry.name for entry in settings["folder"].iterdir()] == ["m.dsal"]


def test_broken_images_share_a_batch_with_others(client: TestClient, album: Path) -> None:
    """More images than a batch holds, a whole batch of them broken: all others are answered, in their order."""
    good = files(album / "first" / "char 0")
    assert client.post("/api/models/m/learn", files=good, data={"labels": "a"}).json()["images"] == 15
    broken = [("images", ("x", b"x"))] * 17
    answers = client.post("/api/models/m/predict?skip_broken=true", files=[*good, *broken, *good]).json()["predictions"]
    assert ["error" in each for each in answers] == [False] * 15 + [True] * 17 + [False] * 15
    novelty = [each["novelty"] for each in (*answers[:15], *answers[-15:])]
    assert novelty[:15] == pytest.approx(novelty[15:], abs=1e-4)
    assert len(set(novelty)) > 10
    answer = client.post("/api/models/m/predict?skip_broken=true", files=broken)
    assert (answer.status_code, answer.json()["error"][:41]) == (422, "none of the images can be read: image 1: ")
    lesson = client.post("/api/models/m/learn?skip_broken=true", files=broken + good[:1], data={"labels": "b"}).json()
    assert (lesson["seen_before"], len(lesson["broken"])) == (1, 17)


def test_broken_images_can_be_skipped(client: TestClient, album: Path) -> None:
    some = [*files(album / "first" / "char 0"), ("images", ("x", b"x"))]
    answer = client.post("/api/models/m/learn?skip_broken=true", files=some, data={"labels": "a"}).json()
    assert answer["images"] == 15
    assert answer["broken"] == ["image 16: it is not an image, or its format is not supported"]
    answers = client.post("/api/models/m/predict?skip_broken=true", files=some[-2:]).json()["predictions"]
    assert [set(each) for each in answers] == [{"label", "score", "top_k", "novelty", "novel"}, {"error"}]


WRONG: tuple[dict[str, Any], ...] = (
        {"shape": [1, 3, 28, 28]}, {"shape": "x"}, {"shape": [-1, 1, 28, 28]}, {"shape": [10**9, 1, 28, 28]},
        {"shape": [True, 1, 28, 28]}, {"datatype": "FP32"}, {"name": "x"}, {"data": [1]}, {"data": ["x"] * 784},
        {"data": [[1], [2, 3]]}, {"data": [256] * 784}, {"data": [-1] * 784}, {"data": [0.5] * 784}, {"data": None},
        {"parameters": {"binary_data_size": 784}},
)  # fmt: skip


def test_wrong_tensors(client: TestClient, album: Path) -> None:
    teach(client, album, "char 0")
    tensor = {"name": "images", "datatype": "UINT8", "shape": [1, 1, 28, 28], "data": [0] * 784}
    assert client.post("/v2/models/m/infer", json={"inputs": [tensor]}).status_code == 200
    for change in WRONG:
        answer = client.post("/v2/models/m/infer", json={"inputs": [{**tensor, **change}]})
        assert (change, answer.status_code in (413, 422), list(answer.json())) == (change, True, ["error"])


def test_a_server_that_cannot_keep_up_says_when_to_come_again(settings: dict[str, Any], album: Path) -> None:
    with TestClient(create_app(Settings(**settings)), base_url=LOCAL) as client:
        teach(client, album, "char 0")
    image = files(album / "first" / "char 0")
    for limits, status, reason in (
        ({"max_queue": 3}, 429, "images are already waiting for a prediction"),
        ({"timeout": 1e-9}, 503, "no answer within"),
        ({"max_bodies": 1000}, 503, "too much data at once"),
    ):
        with TestClient(create_app(Settings(**settings, **limits)), base_url=LOCAL) as client:
            answer = client.post("/api/models/m/predict", files=image)
            assert (answer.status_code, reason in answer.json()["error"]) == (status, True), answer.text
            assert int(answer.headers["Retry-After"]) >= 1


def sums(images: NDArray[np.uint8]) -> NDArray[np.float32]:
    return images.sum(axis=(1, 2, 3), dtype=np.float32)


def same(features: NDArray[np.float32]) -> tuple[Any, ...]:
    return (features,)


def test_the_queue_is_bounded_and_batches_are_shared() -> None:
    sizes: list[int] = []
    runner = Runner(max_batch=4, max_wait=0.0, max_queue=6, observe=sizes.append)
    gate, started = threading.Event(), threading.Event()

    def slow(images: NDArray[np.uint8]) -> NDArray[np.float32]:
        started.set()
        gate.wait(10)
        return sums(images)

    one = np.ones((1, 1, 2, 2), np.uint8)
    first = runner.submit(slow, same, one)
    started.wait(10)
    lesson = runner.submit(sums, same, one, urgent=False)
    later = [runner.submit(slow, same, one * number) for number in range(6)]
    with pytest.raises(Refusal, match="6 images are already waiting") as refused:
        runner.submit(slow, same, one)
    assert refused.value.status == 429
    assert refused.value.retry_after is not None
    assert not lesson.done()
    later[1].cancel()
    gate.set()
    assert first.result(10)[0].tolist() == [4]
    assert [future.result(10)[0].tolist() for future in (later[0], *later[2:])] == [[0], [8], [12], [16], [20]]
    lesson.result(10)
    assert sum(sizes) == 7
    assert max(sizes) <= 4
    assert len(sizes) == 3  # up to four, the others, the lesson
    for extract, score in ((lambda images: 1 / 0, same), (sums, lambda features: 1 / 0)):
        failing = runner.submit(extract, score, one)  # type: ignore[arg-type]
        with pytest.raises(ZeroDivisionError):
            failing.result(10)
    runner.close()
    with pytest.raises(Refusal, match="shutting down"):
        runner.submit(slow, same, one)


def test_images_that_arrive_while_others_are_computed_join_their_batch() -> None:
    sizes: list[int] = []
    runner = Runner(max_batch=4, max_wait=0.0, max_queue=100, observe=sizes.append)
    gate, started = threading.Event(), threading.Event()

    def slow(images: NDArray[np.uint8]) -> NDArray[np.float32]:
        started.set()
        gate.wait(10)
        return sums(images)

    def other(features: NDArray[np.float32]) -> tuple[Any, ...]:
        return (-features,)

    one = np.ones((1, 1, 2, 2), np.uint8)
    crowd = [runner.submit(slow, same, one)]
    started.wait(10)
    crowd += [runner.submit(slow, score, one) for score in (same, other, same, other, same, same)]
    gate.set()
    assert [future.result(10)[0].item() for future in crowd] == [4, 4, -4, 4, -4, 4, 4]
    runner.close()
    assert sizes == [4, 2, 1]  # up to four with the same scores, the oldest first


def test_a_batch_that_is_not_full_waits_if_asked_to() -> None:
    sizes: list[int] = []
    runner = Runner(max_batch=4, max_wait=5.0, max_queue=100, observe=sizes.append)
    crowd = []
    for _ in range(4):
        crowd.append(runner.submit(sums, same, np.ones((1, 1, 2, 2), np.uint8)))
        time.sleep(0.01)
    for future in crowd:
        future.result(10)
    runner.close()
    assert sizes == [4]
