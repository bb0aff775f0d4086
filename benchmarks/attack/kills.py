"""Kills and terminations at random moments, while lessons are learned, models uploaded and locks held."""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
import socket
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import torch
from benchmarks.attack.served import conditions, encoded, files, milliseconds
from PIL import Image

from dsal.backbones import Backbone, Card, channels_last, save_backbone
from dsal.errors import ModelBusyError
from dsal.files.lock import model_lock
from dsal.image_model import ImageModel
from dsal.serve import Settings
from dsal.serve.engine.change_keys import KEYS
from dsal.serve.server import listen, run

IMAGES = 3  # of a lesson
GRACE = 10.0
_SIDE_BY_SIDE = 3  # servers


def small_backbone(path: Path) -> Path:
    """Write a small untrained network."""
    torch.manual_seed(0)
    card = Card(
        architecture="resnet32", dataset=None, seen_classes=None, class_order="natural", in_channels=1, size=28,
        mean=(0.5,), std=(0.5,),
    )  # fmt: skip
    save_backbone(path, channels_last(Backbone(card)).eval())
    return path


def picture(seed: int) -> bytes:
    """Return a small picture of noise."""
    return encoded(Image.fromarray(np.random.default_rng(seed).integers(0, 256, (28, 28), dtype=np.uint8)), "PNG")


class Restarted:
    """A server in another process, forked from one that has imported everything, behind a socket that stays."""

    def __init__(self, settings: Settings, listener: socket.socket) -> None:
        self.settings, self.listener = settings, listener
        self.url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload(["dsal.serve.server"])

    def start(self) -> None:
        self.process = self._context.Process(target=run, args=(self.settings, self.listener), daemon=True)
        self.process.start()

    def end(self, sig: int) -> float:
        """Send a signal and return the seconds until the process has ended."""
        start = time.monotonic()
        assert self.process.pid is not None
        os.kill(self.process.pid, sig)
        self.process.join()
        return time.monotonic() - start


@dataclass
class Teacher:
    """Teaches one lesson after the other, and notes what it was told about each."""

    url: str
    acknowledged: list[int] = field(default_factory=list)
    denied: set[int] = field(default_factory=set)  # told that nothing was learned, and not tried again yet
    answers: Counter[str] = field(default_factory=Counter)
    stop: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        with httpx.Client(base_url=self.url, timeout=60) as client:
            while not self.stop.is_set():
                self.lesson(client, len(self.acknowledged))

    def lesson(self, client: httpx.Client, number: int) -> None:
        images = [picture(IMAGES * number + i) for i in range(IMAGES)]
        self.denied.discard(number)
        try:
            answer = client.post(
                "/api/models/m/learn",
                files=files(images),
                data={"labels": f"class {number % 4}"},
                headers={"Idempotency-Key": f"lesson {number}"},
            )
        except httpx.TransportError:
            self.answers["connection lost"] += 1
            time.sleep(0.01)
            return
        text = "" if answer.status_code == 200 else answer.json()["error"]
        self.answers[f"{answer.status_code} {text[:60]}".strip()] += 1
        if answer.status_code == 200:
            self.acknowledged.append(number)
        elif "unknown" not in text:
            self.denied.add(number)
            time.sleep(0.02)


def uploads(url: str, model: bytes, stop: threading.Event) -> None:
    """Upload and delete a model again and again."""
    with httpx.Client(base_url=url, timeout=60) as client:
        while not stop.is_set():
            for ask in (
                lambda: client.put("/api/models/up/file", content=model),
                lambda: client.delete("/api/models/up"),
            ):
                try:
                    ask()
                except httpx.TransportError:
                    time.sleep(0.01)


def taught(path: Path) -> tuple[int, set[str]]:
    """Return the number of images in a model file, and the keys of its lessons."""
    model = ImageModel.load(path)
    return sum(model.counts.values()), {entry["key"] for entry in model.notes[KEYS]}


@dataclass
class Lives:
    """What became of the lives of one server.

    Attributes:
        seconds: of every end, by signal.
        lost: acknowledged lessons that were not in the file.
        doubled: ends after which the file had more images than were taught.
        false_denials: lessons in the file of which nothing was said to be learned.
        acknowledged: number of acknowledged lessons.
        images: in the file in the end.
        answers: number of answers by status and beginning.
        leftovers: files besides the model in the end.
    """

    seconds: dict[str, list[float]] = field(default_factory=lambda: {"SIGKILL": [], "SIGTERM": []})
    lost: int = 0
    doubled: int = 0
    false_denials: int = 0
    acknowledged: int = 0
    images: int = 0
    answers: Counter[str] = field(default_factory=Counter)
    leftovers: list[str] = field(default_factory=list)


def lives(signals: Sequence[signal.Signals], seed: int, most_seconds: float) -> Lives:
    """End a server at random moments with these signals; compare its model file with what was acknowledged."""
    rng, found, began = random.Random(seed), Lives(), time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        models = Path(folder) / "models"
        models.mkdir()
        path = models / "m.dsal"
        settings = Settings(
            folder=models, backbone=str(small_backbone(Path(folder) / "small.safetensors")), expansion_size=64, port=0,
            grace=GRACE,
        )  # fmt: skip
        with listen(settings) as listener:
            server = Restarted(settings, listener)
            server.start()
            teacher = Teacher(server.url)
            with httpx.Client(base_url=server.url, timeout=120) as client:
                teacher.lesson(client, 0)
                model = client.get("/api/models/m/file").content
            threads = [
                threading.Thread(target=teacher.run),
                threading.Thread(target=uploads, args=(server.url, model, teacher.stop)),
            ]
            for thread in threads:
                thread.start()
            for sig in signals:
                if time.monotonic() > began + most_seconds:
                    break
                before, until = len(teacher.acknowledged), time.monotonic() + 120
                while len(teacher.acknowledged) == before and time.monotonic() < until:
                    time.sleep(0.005)
                time.sleep(rng.uniform(0, 0.3))
                with ExitStack() as locked:
                    if rng.random() < 0.3:
                        with suppress(ModelBusyError):  # another program writes: lessons wait
                            locked.enter_context(model_lock(path, 5))
                            time.sleep(rng.uniform(0, 0.3))
                    found.seconds[sig.name].append(server.end(sig))
                time.sleep(0.05)  # answers that were sent are read
                sure, denied = len(teacher.acknowledged), set(teacher.denied)
                images, keys = taught(path)
                found.lost += sum(f"lesson {n}" not in keys for n in range(max(sure - 150, 0), sure))
                found.doubled += images // IMAGES not in (sure, sure + 1) or images % IMAGES != 0
                found.false_denials += sum(f"lesson {n}" in keys for n in denied)
                server.start()
            teacher.stop.set()
            for thread in threads:
                thread.join()
            server.end(signal.SIGKILL)
        found.images, _ = taught(path)
        found.acknowledged, found.answers = len(teacher.acknowledged), teacher.answers
        found.leftovers = sorted(each.name for each in models.iterdir() if each.name not in ("m.dsal", ".audit.jsonl"))
    return found


def kills(killed: int, terminated: int, most_seconds: float) -> dict[str, Any]:
    """End servers at random moments, three side by side, since most of a life is waiting; stop after a time."""
    os.environ["DSAL_ONNX"] = "0"  # converting the small network would take longer than a life of the server
    signals = [signal.SIGKILL] * killed + [signal.SIGTERM] * terminated
    random.Random(0).shuffle(signals)
    began, before = time.monotonic(), conditions()
    with ProcessPoolExecutor(_SIDE_BY_SIDE, multiprocessing.get_context("spawn")) as pool:
        parts = [signals[first::_SIDE_BY_SIDE] for first in range(_SIDE_BY_SIDE)]
        found = [pool.submit(lives, part, seed, most_seconds) for seed, part in enumerate(parts) if part]
        each = [future.result() for future in found]
    seconds = {name: [s for part in each for s in part.seconds[name]] for name in ("SIGKILL", "SIGTERM")}
    acknowledged = sum(part.acknowledged for part in each)
    return {
        "conditions": before, "seconds": round(time.monotonic() - began), "servers": len(each),
        "killed": len(seconds["SIGKILL"]), "terminated": len(seconds["SIGTERM"]),
        "lessons_acknowledged": acknowledged, "lessons_lost": sum(part.lost for part in each),
        "lessons_doubled": sum(part.doubled for part in each),
        "false_denials": sum(part.false_denials for part in each),
        "images_in_the_end": [sum(part.images for part in each), IMAGES * acknowledged],
        "answers": dict(sum((part.answers for part in each), Counter()).most_common()), "grace": GRACE,
        "exit_ms": {name: {"median": milliseconds(some, 50), "slowest": milliseconds(some, 100)}
                    for name, some in seconds.items()},
        "leftovers_of_the_last_kill": sorted(name for part in each for name in part.leftovers),
    }  # fmt: skip
