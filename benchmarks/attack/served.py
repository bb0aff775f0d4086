"""A server under attack, watched from outside: memory, descriptors, and how long a sign of life takes."""

from __future__ import annotations

import json
import multiprocessing
import os
import platform
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from io import BytesIO
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from dsal.protocol.provenance import environment

_EVERY = 0.05  # seconds between two looks at the memory
_PROBE = 0.1  # seconds between two questions whether it is alive


class Server:
    """``dsal serve`` in a process of its own.

    Args:
        models: folder of the models.
        options: options of the command.
    """

    def __init__(self, models: Path, *options: str) -> None:
        command = [sys.executable, "-m", "dsal", "serve", "--models", str(models), "--port", "0", *options]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        assert self.process.stdout is not None
        self.url = self.process.stdout.readline().strip().rstrip("/")
        host, _, port = self.url.removeprefix("http://").rpartition(":")
        self.address = host, int(port)

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(60)

    def resident(self) -> float:
        """Return its resident memory in MB."""
        return int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


class Watch:
    """The largest memory of a server, and the times it took to say that it is alive, while a block runs."""

    def __init__(self, server: Server) -> None:
        self.server, self.largest = server, 0.0
        self.start = server.resident()
        self.live: list[float] = []
        self.waited: list[float] = []
        self._stop = threading.Event()

    def __enter__(self) -> Watch:
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._thread.start()
        here, there = multiprocessing.Pipe()
        self._answers = here
        self._prober = multiprocessing.get_context("spawn").Process(target=probe, args=(self.server.address, there))
        self._prober.start()
        here.recv()  # it has begun
        return self

    def __exit__(self, *_: object) -> None:
        self._answers.send("stop")
        self.live, self.waited = self._answers.recv()
        self._prober.join(10)
        self._stop.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._stop.wait(_EVERY):
            self.largest = max(self.largest, self.server.resident())

    def found(self) -> dict[str, Any]:
        """Return what was seen, as JSON values."""
        live = {
            "asked": len(self.live),
            "p99_ms": milliseconds(self.live, 99),
            "slowest_ms": milliseconds(self.live, 100),
            "asker_waited_for_a_core_ms": {
                "p99": milliseconds(self.waited, 99),
                "longest": milliseconds(self.waited, 100),
            },
        }
        return {"resident_mb": {"before": round(self.start), "largest": round(self.largest)}, "live": live}


def probe(address: tuple[str, int], pipe: Connection) -> None:
    """Ask again and again whether a server is alive, on one connection each, until told to stop.

    Answer the seconds of each question, and for how many of them this process itself was kept from a core.
    """
    pipe.send("begun")
    seconds, waited = list[float](), list[float]()
    while not pipe.poll(_PROBE):
        start, before = time.perf_counter(), _waiting()
        try:
            with socket.create_connection(address, timeout=30) as connection:
                connection.sendall(b"GET /v2/health/live HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")
                good = connection.recv(4096).startswith(b"HTTP/1.1 200")
        except OSError:
            good = False
        seconds.append(time.perf_counter() - start if good else float("inf"))
        waited.append(_waiting() - before)
    pipe.send((seconds, waited))


def _waiting() -> float:
    """Return the seconds for which this thread was ready to run and no core was free; Linux only."""
    return int(Path("/proc/thread-self/schedstat").read_text().split()[1]) / 1e9


def milliseconds(seconds: Sequence[float], percentile: float) -> float:
    """Return a percentile of some times, in milliseconds."""
    return round(1000 * float(np.percentile(seconds, percentile, method="higher")), 1) if seconds else float("nan")


def photograph(seed: int, width: int = 480, height: int = 360) -> bytes:
    """Return a JPEG that is as large as a small photograph: coarse shapes and noise."""
    random = np.random.default_rng(seed)
    coarse = Image.fromarray(random.integers(0, 256, (9, 12, 3), dtype=np.uint8)).resize((width, height))
    noise = random.integers(-12, 13, (height, width, 3))
    pixels = np.clip(np.asarray(coarse) + noise, 0, 255).astype(np.uint8)
    return encoded(Image.fromarray(pixels), "JPEG")


def encoded(image: Image.Image, format: str) -> bytes:
    """Return an image as a file."""
    buffer = BytesIO()
    image.save(buffer, format)
    return buffer.getvalue()


def files(images: Sequence[bytes]) -> list[tuple[str, tuple[str, bytes]]]:
    """Return images as parts of a form."""
    return [("images", ("x", image)) for image in images]


def conditions() -> dict[str, Any]:
    """Return what the figures depend on."""
    found, busy = environment(), os.getloadavg()[0]
    return {"cpu": found.get("cpu"), "commit": found.get("commit"), "cores": os.cpu_count(),
            "python": platform.python_version(), "load_before": round(busy, 1)}  # fmt: skip


def record(path: Path, name: str, facts: dict[str, Any]) -> None:
    """Add results to a file; results of other seeds stay in it."""
    document = json.loads(path.read_text()) if path.is_file() else {}
    if "seed" in facts:
        runs = [run for run in document.get(name, []) if run["seed"] != facts["seed"]]
        document[name] = sorted([*runs, facts], key=lambda run: run["seed"])
    else:
        document[name] = facts
    path.write_text(json.dumps(document, indent=1) + "\n")
    print(json.dumps({name: facts}, indent=1))
