"""Killed at any moment, crowded, or busy for long: no acknowledged lesson is lost, nobody waits, nothing leaks."""

import gc
import io
import multiprocessing
import random
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from PIL import Image
from starlette.testclient import TestClient

from dsal.image_model import ImageModel
from dsal.serve import Settings
from dsal.serve.engine.change_keys import KEYS
from dsal.serve.engine.library import Library
from dsal.serve.engine.snapshots import Snapshot
from dsal.serve.server import listen, run

from .conftest import teach

IMAGES = 3  # of a lesson


def picture(seed: int) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(np.random.default_rng(seed).integers(0, 256, (28, 28), dtype=np.uint8)).save(buffer, "PNG")
    return buffer.getvalue()


@dataclass
class Served:
    """A server in another process, forked from one that has imported everything, behind a socket that stays."""

    settings: Settings
    listener: socket.socket
    process: Any = None
    url: str = field(init=False)

    def __post_init__(self) -> None:
        self.url = f"http://127.0.0.1:{self.listener.getsockname()[1]}"

    def start(self) -> None:
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(["dsal.serve.server"])
        self.process = context.Process(target=run, args=(self.settings, self.listener), daemon=True)
        self.process.start()

    def kill(self) -> None:
        self.process.kill()
        self.process.join()


@contextmanager
def served(settings: dict[str, Any], **more: Any) -> Iterator[Served]:
    chosen = Settings(**settings, port=0, **more)
    with listen(chosen) as listener:
        server = Served(chosen, listener)
        server.start()
        try:
            yield server
        finally:
            server.kill()


def lesson(client: httpx.Client, url: str, number: int) -> Any:
    images = [("images", ("x.png", picture(IMAGES * number + i))) for i in range(IMAGES)]
    return client.post(
        f"{url}/api/models/m/learn",
        files=images,
        data={"labels": f"class {number % 4}"},
        headers={"Idempotency-Key": f"lesson {number}"},
    )


def taught(path: Path) -> tuple[int, set[str]]:
    """Images in the model on the disk, and the keys of its lessons; nothing if there is none."""
    if not path.exists():
        return 0, set()
    model = ImageModel.load(path)
    return sum(model.counts.values()), {entry["key"] for entry in model.notes[KEYS]}


def killed_again_and_again(settings: dict[str, Any], kills: int) -> None:
    path = settings["folder"] / "m.dsal"
    acknowledged: list[int] = []
    stop = threading.Event()

    def teach(url: str) -> None:
        with httpx.Client(timeout=30) as client:
            while not stop.is_set():
                number = len(acknowledged)
                try:
                    answer = lesson(client, url, number)
                except httpx.TransportError:  # killed meanwhile: the same lesson again
                    time.sleep(0.01)
                    continue
                assert answer.status_code == 200, answer.text
                acknowledged.append(number)

    rng = random.Random(0)
    with served(settings) as server:
        teacher = threading.Thread(target=teach, args=(server.url,))
        teacher.start()
        for _ in range(kills):
            before = len(acknowledged)
            waited = time.monotonic() + 60
            while len(acknowledged) == before and time.monotonic() < waited:
                time.sleep(0.005)
            time.sleep(rng.uniform(0, 0.3))
            server.kill()
            sure = len(acknowledged)  # acknowledged before the death is on the disk after it
            images, keys = taught(path)
            assert images % IMAGES == 0, "half a lesson"
            assert {f"lesson {n}" for n in range(max(sure - 150, 0), sure)} <= keys, "an acknowledged lesson is lost"
            assert images // IMAGES in (sure, sure + 1), "a lesson is lost or counted twice"
            server.start()
        stop.set()
        teacher.join(60)
        server.kill()
    images, _ = taught(path)
    assert images == IMAGES * len(acknowledged)
    assert len(acknowledged) >= kills
    assert [entry.name for entry in path.parent.iterdir() if not entry.name.startswith(".")] == ["m.dsal"]


def test_killed_a_few_times(settings: dict[str, Any]) -> None:
    killed_again_and_again(settings, kills=4)


@pytest.mark.slow
def test_killed_200_times(settings: dict[str, Any]) -> None:
    killed_again_and_again(settings, kills=200)


def test_a_thousand_silent_connections_block_nobody(settings: dict[str, Any]) -> None:
    with served(settings, idle=2.0) as server, httpx.Client(timeout=30) as client:
        assert lesson(client, server.url, 0).status_code == 200
        address = server.listener.getsockname()
        silent = [socket.create_connection(address) for _ in range(1000)]
        silent[0].sendall(b"POST /api/models/m/predict HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 9999\r\n\r\nx")
        silent[1].sendall(b"GET /v2 HT")
        start = time.monotonic()
        for number in range(5):
            answer = client.post(f"{server.url}/api/models/m/predict", files=[("images", ("x", picture(number)))])
            assert answer.status_code == 200
        assert time.monotonic() - start < 10
        with socket.create_connection(address) as endless, pytest.raises(ConnectionError):
            endless.sendall(b"GET /v2 HTTP/1.1\r\nHost: 127.0.0.1\r\n" + b"X: x\r\n" * 10_000_000)
        with socket.create_connection(address) as endless, pytest.raises(ConnectionError):
            endless.sendall(b"GET /v2 HTTP/1.1\r\nHost: 127.0.0.1\r\nX: " + b"x" * 60_000_000)
        silent[-1].settimeout(30)
        assert silent[-1].recv(1) == b""  # closed by the server
        assert silent[1].recv(1) == b""
        for connection in silent:
            connection.close()


def test_what_a_lesson_replaces_is_freed(client: TestClient, album: Path) -> None:
    """Though refusals refer to it in circles, and Python looks for those when it likes."""
    teach(client, album, "char 0")
    gc.collect()
    gc.freeze()  # as server.run does
    gc.disable()
    try:
        for _ in range(4):
            teach(client, album, "char 37")
            assert client.post("/api/models/m/predict", files=[("images", ("x", b"x"))]).status_code == 422
            assert client.post("/api/models/m/undo").status_code == 200
        alive = [each for each in gc.get_objects() if type(each) is Snapshot]
    finally:
        gc.enable()
        gc.unfreeze()
    assert len(alive) <= 2, "the present one, and perhaps the one before"


def test_nobody_waits_for_a_lesson_that_is_being_written(
    client: TestClient, album: Path, settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until the lesson is acknowledged, readers have the snapshot before it; they do not read the file themselves."""
    teach(client, album, "char 0")
    library, made, seen = Library(Settings(**settings)), Snapshot.of, []
    library.snapshot("m")

    def interrupted(*arguments: Any) -> Snapshot:
        seen.append(library.snapshot("m").classes)  # the file is there already, its snapshot is not
        return made(*arguments)

    def renamed(model: ImageModel) -> dict[str, Any]:
        model.rename("char 0", "zero")
        return {}

    monkeypatch.setattr(Snapshot, "of", interrupted)
    library.change("m", None, "rename", renamed)
    assert seen == [["char 0"]]
    assert library.snapshot("m").classes == ["zero"]


@pytest.mark.slow
def test_a_mixed_load_leaks_nothing(settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """The short form of benchmarks/soak.py: two minutes and a half of everything, at twenty requests a second."""
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2]))
    from benchmarks.soak import MixedLoad, soak, summary

    with served(settings) as server:
        load = MixedLoad(server.url, [picture(number) for number in range(60)])
        samples = list(soak(load, server.process.pid, seconds=150, rate=20, every=2))
        load.close()
    found = summary(samples, load)
    assert found["wrong_answers"] == []
    assert len(found["steps"]) == len(load.kinds), "not every kind of request came"
    assert found["resident_mb"]["largest_second_half"] < 1.1 * found["resident_mb"]["largest_first_half"]
    assert found["descriptors"]["largest_second_half"] <= found["descriptors"]["largest_first_half"] + 5
