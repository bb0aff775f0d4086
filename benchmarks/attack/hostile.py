"""2,000 hostile requests from sixteen clients, beside sixteen honest ones."""

from __future__ import annotations

import multiprocessing
import os
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import httpx
from benchmarks.attack.kinds import Attacker
from benchmarks.attack.served import Server, Watch, conditions, files, milliseconds, photograph

CLIENTS = 16
LESSON = 3  # images
_ANSWER = ("label", "score")


class Honest:
    """Fifteen clients that predict and one that teaches, each sending the next request after the last answer."""

    def __init__(self, url: str) -> None:
        self.url, self.images = url, [photograph(number) for number in range(12)]
        self.expected: list[Any] = []
        self.seconds: list[float] = []
        self.wrong: list[str] = []
        self.lessons: Counter[str] = Counter()
        self._stop = threading.Event()

    def run(self, pipe: Connection) -> None:
        """Work until told to stop; answer what was found."""
        with httpx.Client(base_url=self.url, timeout=120) as client:
            self.expected = [self._predict(client, image) for image in self.images]
        threads = [threading.Thread(target=self._predicts, args=(number,)) for number in range(CLIENTS - 1)]
        threads.append(threading.Thread(target=self._teaches))
        for thread in threads:
            thread.start()
        pipe.send("begun")
        pipe.recv()
        self._stop.set()
        for thread in threads:
            thread.join()
        pipe.send((self.seconds, self.wrong, dict(self.lessons)))

    def _predict(self, client: httpx.Client, image: bytes) -> Any:
        answer = client.post("/api/models/cups/predict", files=files([image]))
        if answer.status_code != 200:
            return answer.text[:200]
        (found,) = answer.json()["predictions"]
        return found["label"], round(found["score"], 4)

    def _predicts(self, number: int) -> None:
        with httpx.Client(base_url=self.url, timeout=120) as client:
            while not self._stop.is_set():
                number = (number + 1) % len(self.images)
                start = time.perf_counter()
                found = self._predict(client, self.images[number])
                self.seconds.append(time.perf_counter() - start)
                if found != self.expected[number]:
                    self.wrong.append(f"{found} instead of {self.expected[number]}")

    def _teaches(self) -> None:
        """Teach lesson after lesson; each is taught again with its key until it is acknowledged."""
        with httpx.Client(base_url=self.url, timeout=120) as client:
            while not self._stop.is_set():
                number = self.lessons["acknowledged"]
                images = [photograph(100 * os.getpid() + LESSON * number + i) for i in range(LESSON)]
                answer = client.post(
                    "/api/models/lessons/learn",
                    files=files(images),
                    data={"labels": f"class {number % 2}"},
                    headers={"Idempotency-Key": f"{os.getpid()} {number}"},
                )
                if answer.status_code == 200:
                    self.lessons.update(acknowledged=1, images=answer.json()["images"])
                else:
                    self.lessons[f"answered {answer.status_code}"] += 1
                self._stop.wait(1)


def _honest(url: str, pipe: Connection) -> None:
    Honest(url).run(pipe)


class Crowd:
    """Honest clients in a process of their own."""

    def __init__(self, url: str) -> None:
        self._pipe, there = multiprocessing.Pipe()
        self._process = multiprocessing.get_context("spawn").Process(target=_honest, args=(url, there))
        self._process.start()
        self._pipe.recv()

    def end(self) -> tuple[list[float], list[str], dict[str, int]]:
        """Return the seconds of their predictions, wrong answers, and the lessons by answer."""
        self._pipe.send("stop")
        found = self._pipe.recv()
        self._process.join()
        return found  # type: ignore[no-any-return]


def attack(
    address: tuple[str, int], model: bytes, requests: int, seed: int, most_seconds: float
) -> dict[str, Counter[int]]:
    """Send hostile requests from sixteen clients; return the number of answers by kind and status."""
    answers: dict[str, Counter[int]] = {}
    left, lock, until = [requests], threading.Lock(), time.monotonic() + most_seconds

    def client(number: int) -> None:
        attacker = Attacker(address, seed * CLIENTS + number, model)
        while True:
            with lock:
                if not left[0] or time.monotonic() > until:
                    break
                left[0] -= 1
            kind, status = attacker.step()
            with lock:
                answers.setdefault(kind, Counter())[status] += 1
        for connection in attacker.held:
            connection.close()

    threads = [threading.Thread(target=client, args=(number,)) for number in range(CLIENTS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return answers


def hostile(requests: int, memory: str, alone: float, most_seconds: float) -> dict[str, Any]:
    """Measure honest clients alone, then beside the attack; compare what was learned with what was acknowledged."""
    from dsal.image_model import ImageModel

    found: dict[str, Any] = {"conditions": conditions(), "memory": memory}
    with tempfile.TemporaryDirectory() as folder:
        models = Path(folder) / "models"
        models.mkdir()
        os.mkfifo(models / "pipe.dsal")
        (models / "link.dsal").symlink_to("/etc/passwd")
        with Server(models, "--memory", memory) as server:
            small = _prepare(server.url, models)
            taught: Counter[str] = Counter()
            for name in ("alone", "beside"):
                start = time.monotonic()
                with Watch(server) as watch:
                    crowd = Crowd(server.url)
                    if name == "alone":
                        time.sleep(alone)
                    else:
                        os.nice(10)  # the attackers' own work comes from elsewhere
                        answers = attack(server.address, small, requests, 0, most_seconds)
                    seconds, wrong, lessons = crowd.end()
                taught.update(lessons)
                found[name] = {
                    **watch.found(), "seconds": round(time.monotonic() - start), "predictions": len(seconds),
                    "p50_ms": milliseconds(seconds, 50), "p99_ms": milliseconds(seconds, 99), "wrong": wrong[:10],
                    "lessons": lessons,
                }  # fmt: skip
        found["hostile"] = {kind: dict(sorted(by.items())) for kind, by in sorted(answers.items())}
        found["requests"] = sum(sum(by.values()) for by in answers.values())
        found["status_500"] = sum(by[500] for by in answers.values())
        found["p99_ratio"] = round(found["beside"]["p99_ms"] / found["alone"]["p99_ms"], 2)
        counts = sum(ImageModel.load(models / "lessons.dsal").counts.values())
        found["images_learned"], found["images_acknowledged"] = counts, taught["images"]
        found["models_left"] = sorted(
            path.name for path in models.glob("[!.]*.dsal") if path.is_file() and not path.is_symlink()
        )
    return found


def _prepare(url: str, models: Path) -> bytes:
    """Teach the model that honest clients ask; return a small model file."""
    with httpx.Client(base_url=url, timeout=300) as client:
        for label, first in (("mug", 0), ("glass", 6)):
            _learn(client, "cups", [photograph(number) for number in range(first, first + 6)], label)
    from dsal.image_model import ImageModel

    model = ImageModel(expansion_size=64)
    model.learn(([photograph(number) for number in range(4)], ["a", "a", "b", "b"]))
    path = models.parent / "small.dsal"
    model.save(path)
    return path.read_bytes()


def _learn(client: httpx.Client, name: str, images: Sequence[bytes], label: str) -> None:
    client.post(f"/api/models/{name}/learn", files=files(images), data={"labels": label}).raise_for_status()
