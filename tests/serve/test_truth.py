"""True answers and fair shares: learned, not learned or unknown; each waits for his own lock; memory is freed."""

import asyncio
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import weakref
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from starlette.testclient import TestClient

from dsal.backbones import Backbone, channels_last, load_backbone
from dsal.files.lock import model_lock
from dsal.files.tensors import load_tensors, save_tensors
from dsal.image_model import ImageModel
from dsal.serve import Settings, create_app
from dsal.serve.engine.extractor import Extractor
from dsal.serve.engine.library import Library
from dsal.serve.engine.runner import Runner
from dsal.serve.engine.snapshots import Shelf, Snapshot
from dsal.serve.engine.writer import Writer
from dsal.serve.http_errors import Stopped, Unknown

from .conftest import LOCAL, teach
from .live import Server
from .test_durability import lesson, picture, served, taught
from .test_limits import same, sums


def test_an_interrupted_change_is_not_made_or_unknown() -> None:
    gate, began, made = threading.Event(), threading.Event(), list[str]()

    def change(name: str, wait: bool) -> str:
        began.set()
        if wait:
            gate.wait(10)
        made.append(name)
        return name

    async def scene() -> None:
        writer = Writer(4)
        first = asyncio.ensure_future(writer.run(change, "a", True))
        while not began.is_set():
            await asyncio.sleep(0.01)
        second = asyncio.ensure_future(writer.run(change, "b", False))
        third = asyncio.ensure_future(writer.run(change, "a", False))
        await asyncio.sleep(0.05)
        assert writer.busy_seconds() > 0.04
        for task, error in ((first, Unknown), (second, Stopped), (third, Stopped)):
            task.cancel()
            with pytest.raises(error):
                await task
        gate.set()
        writer.close()

    asyncio.run(scene())
    assert made == ["a"]


def test_sigterm_while_a_lesson_waits(settings: dict[str, Any]) -> None:
    """The client was told that nothing was learned, and after the restart the lesson was there."""
    path = settings["folder"] / "m.dsal"
    with served(settings, grace=4.0) as server, httpx.Client(timeout=60) as client:
        assert lesson(client, server.url, 0).status_code == 200
        answers: list[Any] = []
        with model_lock(path):
            sender = threading.Thread(target=lambda: answers.append(lesson(httpx.Client(timeout=60), server.url, 1)))
            sender.start()
            time.sleep(2)
            start = time.monotonic()
            os.kill(server.process.pid, signal.SIGTERM)
            server.process.join(20)
            assert server.process.exitcode is not None
            assert time.monotonic() - start < 8
            sender.join(10)
        (answer,) = answers
        assert (answer.status_code, answer.headers["Retry-After"]) == (503, "5")
        assert "nothing was changed" in answer.json()["error"]
        assert taught(path)[1] == {"lesson 0"}
        server.start()
        assert lesson(client, server.url, 1).json()["images"] == 3
        assert taught(path)[1] == {"lesson 0", "lesson 1"}


HANGING = """if True:  # a server whose writer never comes back
    import sys, time
    from pathlib import Path
    from dsal.serve.engine.library import Library
    from dsal.serve.server import Settings, listen, run
    Library.change = lambda *arguments: time.sleep(1000)
    settings = Settings(folder=Path(sys.argv[1]), backbone=sys.argv[2], port=0, grace=8.0, stuck=0.5)
    with listen(settings) as listener:
        print(listener.getsockname()[1], flush=True)
        run(settings, listener)
"""


def test_sigterm_ends_the_server_whatever_runs(settings: dict[str, Any]) -> None:
    command = [sys.executable, "-c", HANGING, str(settings["folder"]), settings["backbone"]]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server, httpx.Client(timeout=60) as client:
        try:
            assert server.stdout is not None
            url, answers = f"http://127.0.0.1:{server.stdout.readline().strip()}", list[Any]()
            sender = threading.Thread(target=lambda: answers.append(lesson(httpx.Client(timeout=60), url, 1)))
            sender.start()
            until = time.monotonic() + 60
            while client.get(f"{url}/v2/health/ready").status_code == 200 and time.monotonic() < until:
                time.sleep(0.1)
            answer = client.get(f"{url}/v2/health/ready")
            assert (answer.status_code, "a change has been running" in answer.json()["error"]) == (503, True)
            assert client.get(f"{url}/v2/health/live").status_code == 200
            start = time.monotonic()
            server.send_signal(signal.SIGTERM)
            assert server.wait(30) == 128 + signal.SIGTERM
            assert time.monotonic() - start < 12
            sender.join(10)
            assert "the outcome is unknown" in answers[0].json()["error"]
        finally:
            server.kill()


BUSY = """if True:  # a server beside threads that compute in Python, with or without its own switch interval
    import sys, threading
    from pathlib import Path
    from dsal.serve.server import Settings, listen, run

    def work():
        while True:
            sum(range(50))

    if sys.argv[2] == "default":
        sys.setswitchinterval = lambda seconds: None
    settings = Settings(folder=Path(sys.argv[1]), port=0)
    with listen(settings) as listener:
        print(listener.getsockname()[1], flush=True)
        for _ in range(3):
            threading.Thread(target=work, daemon=True).start()
        run(settings, listener)
"""


def test_the_event_loop_does_not_wait_long_for_pythons_lock(settings: dict[str, Any]) -> None:
    """It asks for the lock after every socket call, and each time waited 5 ms for a thread that computes in Python."""
    question = b"GET /v2/health/live HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n"
    usual = {}
    for interval in ("default", "own"):
        command, seconds = [sys.executable, "-c", BUSY, str(settings["folder"]), interval], list[float]()
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
            assert server.stdout is not None
            address = "127.0.0.1", int(server.stdout.readline())
            for _ in range(101):
                start = time.perf_counter()
                with socket.create_connection(address, timeout=60) as connection:
                    connection.sendall(question)
                    assert connection.recv(4096).startswith(b"HTTP/1.1 200")
                seconds.append(time.perf_counter() - start)
            server.kill()
        usual[interval] = sorted(seconds)[50]
    assert usual["own"] < 0.6 * usual["default"]


def test_keys_survive_every_undo(client: TestClient, album: Path, settings: dict[str, Any]) -> None:
    first = teach(client, album, "char 0", key="one").json()
    assert client.post("/api/models/m/undo", headers={"Idempotency-Key": "back"}).status_code == 200
    assert not (settings["folder"] / "m.dsal").exists()
    assert client.get("/api/models/m/lessons/one").json()["state"] == "learned"
    assert teach(client, album, "char 0", key="one").json() == {**first, "repeated": True}
    assert not (settings["folder"] / "m.dsal").exists()
    assert teach(client, album, "char 37", key="two").json()["new_classes"] == ["char 37"]
    assert teach(client, album, "char 0", key="one").json()["repeated"]
    assert [path.name for path in settings["folder"].iterdir()] == ["m.dsal"]
    assert client.delete("/api/models/m").status_code == 200
    assert not teach(client, album, "char 0", key="one").json()["repeated"]


def test_a_locked_model_delays_only_itself(client: TestClient, album: Path, settings: dict[str, Any]) -> None:
    teach(client, album, "char 0")
    answers: list[Any] = []
    with model_lock(settings["folder"] / "m.dsal"):
        waiting = threading.Thread(target=lambda: answers.append(teach(client, album, "char 37")))
        waiting.start()
        time.sleep(1)
        start = time.monotonic()
        assert teach(client, album, "char 0", name="other").status_code == 200
        assert time.monotonic() - start < 10
        assert not answers
    waiting.join(30)
    assert answers[0].status_code == 200


def test_ready_means_able_to_learn(client: TestClient, settings: dict[str, Any]) -> None:
    assert client.get("/v2/health/ready").status_code == 200
    settings["folder"].rmdir()
    answer = client.get("/v2/health/ready")
    assert (answer.status_code, answer.headers["Retry-After"]) == (503, "5")
    settings["folder"].mkdir()
    client.app.service.draining = True  # type: ignore[attr-defined]
    assert client.get("/v2/health/ready").status_code == 503
    assert client.get("/v2/health/live").status_code == 200


def test_lessons_get_every_fourth_piece_of_work() -> None:
    order: list[int] = []

    def extract(images: Any) -> Any:
        order.append(int(images[0, 0, 0, 0]))
        time.sleep(0.002)
        return sums(images)

    runner = Runner(max_batch=1, max_wait=0.0, max_queue=1000)
    gate = threading.Event()
    runner.submit(lambda images: (gate.wait(10), sums(images))[1], same, np.zeros((1, 1, 1, 1), np.uint8))
    ones, zeros = np.ones((1, 1, 1, 1), np.uint8), np.zeros((1, 1, 1, 1), np.uint8)
    work = [runner.submit(extract, same, zeros) for _ in range(40)]
    work += [runner.submit(extract, same, ones, urgent=False) for _ in range(10)]
    gate.set()
    for each in work:
        each.result(20)
    runner.close()
    assert sum(order[:40]) == 10, "all ten are done while predictions wait"


def test_a_lesson_beside_many_predictions(settings: dict[str, Any]) -> None:
    """32 clients keep the queue full; lessons that gave way to every prediction took fifty times as long."""
    stop, numbers = threading.Event(), iter(range(100))

    def predicts(url: str) -> None:
        with httpx.Client(timeout=60) as client:
            while not stop.is_set():
                client.post(f"{url}/api/models/m/predict", files=[("images", ("x", picture(0)))]).raise_for_status()

    with served(settings) as server, httpx.Client(timeout=30) as client:

        def seconds() -> float:
            start = time.monotonic()
            assert lesson(client, server.url, next(numbers)).status_code == 200
            return time.monotonic() - start

        seconds()
        alone = sorted(seconds() for _ in range(5))
        crowd = [threading.Thread(target=predicts, args=(server.url,)) for _ in range(32)]
        for each in crowd:
            each.start()
        time.sleep(1)
        try:
            beside = sorted(seconds() for _ in range(5))
        finally:
            stop.set()
            for each in crowd:
                each.join()
    assert beside[2] < 6 * alone[2] + 1


def test_models_leave_the_memory(client: TestClient, album: Path, settings: dict[str, Any]) -> None:
    for name in "abcd":
        teach(client, album, "char 0", name=name)
    library = Library(Settings(**settings))
    (a, b, c, d), stamp = (library.snapshot(name) for name in "abcd"), (0, 0, 0)
    shelf = Shelf(2**50)
    for name, snapshot in zip("abc", (a, b, c), strict=True):
        shelf.put(name, stamp, snapshot)
    one = shelf.bytes()
    shelf.drop("c")
    one -= shelf.bytes()
    assert one > 128 * 128
    shelf.get(Snapshot, "a")  # used later than b
    shelf.share = shelf.bytes() + one // 2
    shelf.put("d", stamp, d)
    assert [name for name in "abcd" if shelf.get(Snapshot, name)[0] is not None] == ["a", "d"]
    shelf.memory = 1  # the process takes more than it may
    shelf.put("b", stamp, b)
    assert (len(shelf), shelf.get(Snapshot, "b")[1]) == (1, b)
    assert len(library.shelf) == 4
    (settings["folder"] / "a.dsal").unlink()  # by another program
    library.listing()
    assert len(library.shelf) == 3
    library.remove("b")
    assert len(library.shelf) == 2


def test_backbones_leave_with_their_models(client: TestClient, album: Path, settings: dict[str, Any]) -> None:
    service = client.app.service  # type: ignore[attr-defined]
    uploads = []
    for shade in (0.4, 0.3):
        weights = load_backbone(settings["backbone"])
        card = {**vars(weights.card), "mean": (shade,)}
        model = ImageModel(channels_last(Backbone(type(weights.card)(**card))).eval())
        model.learn(album / "first")
        model.save(settings["folder"].parent / "x.dsal")
        uploads.append((settings["folder"].parent / "x.dsal").read_bytes())
    assert client.put("/api/models/one/file", content=uploads[0]).status_code == 201
    assert client.put("/api/models/one/file", content=uploads[1]).status_code == 409
    assert len(service.library._extractors) == 0
    assert client.get("/api/models/one/info").status_code == 200
    assert len(service.library._extractors) == 1
    assert client.delete("/api/models/one").status_code == 200
    assert len(service.library._extractors) == 0


def test_backbones_are_converted_one_at_a_time(settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever uploads many models with networks of their own occupies one core, and no memory once they are gone."""
    gate, converted, at_once = threading.Event(), list[int](), threading.Lock()

    def convert(backbone: Backbone, pixels: int, *how: object) -> None:
        if pixels:
            assert at_once.acquire(blocking=False)
            converted.append(id(backbone))
            gate.wait(10)
            at_once.release()

    monkeypatch.setattr("dsal.serve.engine.extractor.graph_of", convert)
    first = Extractor(load_backbone(settings["backbone"]))
    while not converted:
        time.sleep(0.01)
    gone, last = (Extractor(load_backbone(settings["backbone"])) for _ in range(2))
    there = weakref.ref(gone)
    del gone
    assert there() is None, "though its conversion was asked for"
    gate.set()
    first.prepare()
    last.prepare()
    assert converted == [id(first.backbone), id(last.backbone)]


def test_downloads_are_files_of_the_folder(client: TestClient, settings: dict[str, Any]) -> None:
    os.mkfifo(settings["folder"] / "pipe.dsal")
    (settings["folder"].parent / "secret").write_text("secret")
    (settings["folder"] / "link.dsal").symlink_to(settings["folder"].parent / "secret")
    for _ in range(50):
        assert client.get("/api/models/pipe/file").status_code == 404
    assert client.get("/api/models/link/file").status_code == 403
    assert client.get("/api/models").status_code == 200
    assert client.get("/api/models/pipe/info").status_code in (404, 422)


def test_uploads_bring_no_graph(settings: dict[str, Any], album: Path, tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    from tests.backbones.test_foreign import endless, extractor

    from dsal.backbones.graphs import onnx_backbone

    (tmp_path / "x.onnx").write_bytes(extractor().SerializeToString())
    model = ImageModel(onnx_backbone(tmp_path / "x.onnx"))
    model.learn(album / "first")
    model.save(tmp_path / "x.dsal")
    data = (tmp_path / "x.dsal").read_bytes()
    for allowed, status in ((False, 422), (True, 201)):
        with TestClient(create_app(Settings(**settings, foreign_backbones=allowed)), base_url=LOCAL) as client:
            answer = client.put("/api/models/x/file", content=data)
            assert (answer.status_code, "--allow-foreign-backbones" in answer.text) == (status, not allowed)
            arrays, facts = load_tensors(tmp_path / "x.dsal")
            arrays["backbone.network.graph"] = np.frombuffer(endless().SerializeToString(), np.uint8)
            save_tensors(tmp_path / "bad.dsal", arrays, facts)  # with the right checksums
            answer = client.put("/api/models/bad/file", content=(tmp_path / "bad.dsal").read_bytes())
            assert (answer.status_code, "loops or branches" in answer.text) == (422, allowed)


def test_an_upload_has_to_predict(client: TestClient, album: Path, settings: dict[str, Any]) -> None:
    """Every checksum is right, and its numbers are not: it was accepted, and every prediction was a 500."""
    teach(client, album, "char 0", "char 37")
    path = settings["folder"] / "m.dsal"
    for name, value in (("novelty.products", -1.0), ("novelty.sums", float("inf"))):
        arrays, facts = load_tensors(path)
        arrays = {key: np.array(array) for key, array in arrays.items()}
        arrays[name][:] = value
        save_tensors(settings["folder"] / "bad.dsal", arrays, facts)
        data = (settings["folder"] / "bad.dsal").read_bytes()
        assert client.put("/api/models/up/file", content=data).status_code == 422
        for answer in (client.get("/api/models/bad/info"), client.get("/v2/models/bad/ready")):
            assert (answer.status_code, "error" in answer.json()) == (422, True)


def test_a_token_of_the_user_is_not_printed(
    settings: dict[str, Any], weights: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DSAL_TOKEN", "a-token-of-the-user")
    with Server(settings["folder"], weights) as server:
        assert "token" not in server.url
        assert httpx.get(f"{server.url}api/models").status_code == 401
        assert server.stop() == 0
        assert "a-token" not in "".join(server.said)
