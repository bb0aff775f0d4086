"""Killed at any moment, crowded, or busy for long: no acknowledged lesson is lost, nobody waits, nothing leaks."""

import io
import multiprocessing
import os
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

from dsal.images import ImageModel
from dsal.serve import Settings
from dsal.serve.library import KEYS
from dsal.serve.server import listen, run

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
        silent[-1].settimeout(30)
        assert silent[-1].recv(1) == b""  # closed by the server
        assert silent[1].recv(1) == b""
        for connection in silent:
            connection.close()


def resident(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.slow
def test_mixed_load_leaks_nothing(settings: dict[str, Any]) -> None:
    """Three minutes of predictions, lessons, corrections, mistakes and broken connections."""

    def load(url: str, seed: int, until: float) -> None:
        rng, number = random.Random(seed), 10_000 * (seed + 1)
        with httpx.Client(timeout=60, base_url=url) as client:
            while time.monotonic() < until:
                number += 1
                kind = rng.random()
                if kind < 0.7:
                    client.post("/api/models/m/predict", files=[("images", ("x", picture(number)))])
                elif kind < 0.8:
                    lesson(client, url, number)
                    client.post("/api/models/m/undo")
                elif kind < 0.9:
                    client.post("/api/models/m/predict", content=b"garbage")
                else:
                    with socket.create_connection(("127.0.0.1", int(url.rsplit(":")[-1]))) as broken:
                        broken.sendall(
                            b"POST /api/models/m/learn HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n\r\nx"
                        )

    with served(settings) as server:
        with httpx.Client(timeout=60) as client:
            for number in range(4):
                lesson(client, server.url, number)
        sizes, descriptors = [], []
        for _ in range(4):
            until = time.monotonic() + 45
            workers = [threading.Thread(target=load, args=(server.url, seed, until)) for seed in range(4)]
            for worker in workers:
                worker.start()
            for worker in workers:
                worker.join()
            time.sleep(1)
            sizes.append(resident(server.process.pid))
            descriptors.append(len(list(Path(f"/proc/{server.process.pid}/fd").iterdir())))
        print(f"resident MB {[round(size / 1e6) for size in sizes]}, descriptors {descriptors}")
        assert sizes[-1] < 1.1 * sizes[1]
        assert descriptors[-1] <= descriptors[0] + 5
