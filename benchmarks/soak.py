"""Check that ``dsal serve`` does not grow: a long mixed load, with the server's memory and descriptors recorded.

    python benchmarks/soak.py --images FOLDER --minutes 60 --out benchmarks/results/soak.json

FOLDER holds photographs by class. A few requests per second are sent one after the other: predictions, tensors, lessons
that are sent twice and undone, corrections, uploads, mistakes, connections that break or stay silent.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import httpx

WARM = 0.2  # fraction of the samples that do not count, while caches and pools fill


@dataclass(frozen=True)
class Sample:
    """The server at one moment."""

    seconds: float
    resident_mb: float
    descriptors: int
    threads: int
    cpu_seconds: float


def sample(pid: int, since: float) -> Sample:
    """Return what the system reports about a process; ``since`` is when the load began."""
    process = Path(f"/proc/{pid}")
    status = dict(line.split(":", 1) for line in (process / "status").read_text().splitlines())
    fields = (process / "stat").read_text().rpartition(")")[2].split()
    return Sample(
        seconds=round(time.monotonic() - since, 1),
        resident_mb=round(int(status["VmRSS"].split()[0]) / 1024, 1),
        descriptors=len(list((process / "fd").iterdir())),
        threads=int(status["Threads"]),
        cpu_seconds=(int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK"),
    )


class MixedLoad:
    """Requests of every kind to the model ``soak``, each with its expected status.

    Args:
        url: URL of the server.
        images: files to send; the first third is taught.
        seed: seed of the order.
    """

    def __init__(self, url: str, images: Sequence[bytes], seed: int = 0) -> None:
        self.client = httpx.Client(base_url=url, timeout=120)
        self.images, self.random, self.number = images, random.Random(seed), 0
        self.done: Counter[str] = Counter()
        self.wrong: list[str] = []
        self.silent: list[socket.socket] = []
        third = len(images) // 3
        for label, some in (("one", images[: third // 2]), ("two", images[third // 2 : third])):
            self.ask("POST", "/learn", 200, files=_files(some), data={"labels": label})
        self.kinds: dict[Callable[[], None], float] = {
            self.predict: 60, self.predict_some: 6, self.infer: 6, self.look: 10, self.lesson: 2, self.correct: 1,
            self.carry: 0.5, self.mistake: 6, self.break_off: 5, self.say_nothing: 3.5,
        }  # fmt: skip

    def step(self) -> None:
        """Send a request of a random kind."""
        (kind,) = self.random.choices(list(self.kinds), list(self.kinds.values()))
        self.done[kind.__name__] += 1
        self.number += 1
        kind()

    def ask(self, method: str, rest: str, status: int, name: str = "soak", **more: Any) -> httpx.Response:
        """Send a request and record an unexpected answer."""
        path = rest if rest.startswith(("/v2", "/metrics")) else f"/api/models/{name}{rest}"
        answer = self.client.request(method, path, **more)
        if answer.status_code != status:
            self.wrong.append(f"{method} {path}: {answer.status_code} {answer.text[:200]}")
        return answer

    def predict(self) -> None:
        self.ask("POST", "/predict", 200, files=_files([self.random.choice(self.images)]))

    def predict_some(self) -> None:
        self.ask("POST", "/predict?skip_broken=true", 200, files=_files([*self.random.sample(self.images, 5), b"x"]))

    def infer(self) -> None:
        (tensor,) = self.ask("GET", "/v2/models/soak", 200).json()["inputs"]
        shape = [1, *tensor["shape"][1:]]
        size = shape[1] * shape[2] * shape[3]
        given = {**tensor, "shape": shape, "parameters": {"binary_data_size": size}}
        head = json.dumps({"inputs": [given]}).encode()
        headers = {"Inference-Header-Content-Length": str(len(head))}
        self.ask("POST", "/v2/models/soak/infer", 200, content=head + self.random.randbytes(size), headers=headers)

    def look(self) -> None:
        self.ask("GET", "/info", 200)
        self.ask("GET", "/metrics", 200)

    def lesson(self) -> None:
        """Send a lesson twice under one key, and undo it."""
        some = [image + self.number.to_bytes(8, "big") for image in self.random.sample(self.images, 3)]
        sent: dict[str, Any] = {"headers": {"Idempotency-Key": f"key {self.number}"}, "data": {"labels": "two"}}
        first = self.ask("POST", "/learn", 200, files=_files(some), **sent).json()
        again = self.ask("POST", "/learn", 200, files=_files(some), **sent).json()
        if again != {**first, "repeated": True}:
            self.wrong.append(f"sent twice: {first}, then {again}")
        self.ask("POST", "/undo", 200)

    def correct(self) -> None:
        self.ask("POST", "/rename", 200, json={"old": "one", "new": "three"})
        self.ask("POST", "/undo", 200)
        self.ask("POST", "/drop", 200, json={"label": "two"})
        self.ask("POST", "/undo", 200)

    def carry(self) -> None:
        """Download the model, upload it under another name, use it, delete it."""
        model = self.ask("GET", "/file", 200).content
        self.ask("PUT", "/file", 201, name="copy", content=model)
        self.ask("POST", "/predict", 200, name="copy", files=_files([self.random.choice(self.images)]))
        self.ask("DELETE", "", 200, name="copy")

    def mistake(self) -> None:
        self.ask("POST", "/predict", 422, files=_files([b"not an image"]))
        self.ask("POST", "/predict", 415, content=b"garbage")
        self.ask("POST", "/rename", 422, json={"old": "nobody", "new": "x"})

    def break_off(self) -> None:
        with self._connection() as broken:
            broken.sendall(
                b"POST /api/models/soak/learn HTTP/1.1\r\nHost: localhost\r\nContent-Type: multipart/form-data; "
                b"boundary=B\r\nContent-Length: 50000\r\n\r\n--B\r\n"
            )

    def say_nothing(self) -> None:
        """Leave a connection open; ten at most."""
        self.silent.append(self._connection())
        for connection in self.silent[:-10]:
            connection.close()
        self.silent = self.silent[-10:]

    def close(self) -> None:
        """Close all connections."""
        for connection in self.silent:
            connection.close()
        self.client.close()

    def _connection(self) -> socket.socket:
        return socket.create_connection((self.client.base_url.host, self.client.base_url.port))


def soak(load: MixedLoad, pid: int, seconds: float, rate: float, every: float) -> Iterator[Sample]:
    """Run the load at this many steps per second, and yield the state of the server from time to time."""
    start = time.monotonic()
    due, noted = start, start
    while (now := time.monotonic()) < start + seconds:
        load.step()
        if now >= noted:
            noted = now + every
            yield sample(pid, start)
        due = max(due + load.random.expovariate(rate), now)
        time.sleep(max(due - time.monotonic(), 0))
    yield sample(pid, start)


def summary(samples: Sequence[Sample], load: MixedLoad) -> dict[str, Any]:
    """Compare the first half of the samples after the warm-up with the second half."""
    warm = samples[int(WARM * len(samples)) :]
    halves = warm[: len(warm) // 2], warm[len(warm) // 2 :]
    last = samples[-1]
    return {
        "minutes": round(last.seconds / 60, 1),
        "resident_mb": {"largest_first_half": max(s.resident_mb for s in halves[0]),
                        "largest_second_half": max(s.resident_mb for s in halves[1])},
        "descriptors": {"largest_first_half": max(s.descriptors for s in halves[0]),
                        "largest_second_half": max(s.descriptors for s in halves[1])},
        "threads": [warm[0].threads, last.threads],
        "cores_used": round((last.cpu_seconds - samples[0].cpu_seconds) / (last.seconds - samples[0].seconds), 3),
        "steps": dict(load.done),
        "wrong_answers": load.wrong,
    }  # fmt: skip


def _files(images: Sequence[bytes]) -> list[tuple[str, tuple[str, bytes]]]:
    return [("images", ("x", image)) for image in images]


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--images", type=Path, required=True)
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--rate", type=float, default=2.0, help="Requests per second.")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    files = [path.read_bytes() for path in sorted(options.images.rglob("*.jpg"))][::4]
    with tempfile.TemporaryDirectory() as models:
        command = [sys.executable, "-m", "dsal", "serve", "--models", models, "--port", "0"]
        server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        try:
            assert server.stdout is not None
            load = MixedLoad(server.stdout.readline().strip(), files)
            samples = []
            for found in soak(load, server.pid, 60 * options.minutes, options.rate, every=30):
                samples.append(found)
                print(found, flush=True)
            load.close()
        finally:
            server.terminate()
            server.wait()
    document = {**summary(samples, load), "rate": options.rate, "samples": [asdict(found) for found in samples]}
    print(json.dumps({name: value for name, value in document.items() if name != "samples"}, indent=2))
    if options.out is not None:
        options.out.write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    main()
