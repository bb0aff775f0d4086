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
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import torch
from benchmarks.attack.served import conditions, encoded, files, milliseconds
from PIL import Image

from dsal.backbones import Backbone, Card, channels_last, save_backbone
from dsal.files.lock import model_lock
from dsal.image_model import ImageModel
from dsal.serve import Settings
from dsal.serve.engine.change_keys import KEYS
from dsal.serve.server import listen, run

IMAGES = 3  # of a lesson
GRACE = 10.0


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


def kills(killed: int, terminated: int, most_seconds: float) -> dict[str, Any]:
    """End the server at random moments, and compare its model file with what was acknowledged; stop after a time."""
    os.environ["DSAL_ONNX"] = "0"  # converting the small network would take longer than a life of the server
    rng = random.Random(0)
    signals = [signal.SIGKILL] * killed + [signal.SIGTERM] * terminated
    rng.shuffle(signals)
    lost = doubled = false_denials = 0
    seconds: dict[str, list[float]] = {"SIGKILL": [], "SIGTERM": []}
    began = time.monotonic()
    conditions_before = conditions()
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
                if rng.random() < 0.3:
                    try:
                        with model_lock(path, 5):  # another program writes: lessons wait
                            time.sleep(rng.uniform(0, 0.3))
                            seconds[sig.name].append(server.end(sig))
                    except TimeoutError:
                        seconds[sig.name].append(server.end(sig))
                else:
                    seconds[sig.name].append(server.end(sig))
                time.sleep(0.05)  # answers that were sent are read
                sure, denied = len(teacher.acknowledged), set(teacher.denied)
                images, keys = taught(path)
                lost += sum(f"lesson {n}" not in keys for n in range(max(sure - 150, 0), sure))
                doubled += images // IMAGES not in (sure, sure + 1) or images % IMAGES != 0
                false_denials += sum(f"lesson {n}" in keys for n in denied)
                server.start()
            teacher.stop.set()
            for thread in threads:
                thread.join()
            server.end(signal.SIGKILL)
        images, _ = taught(path)
        leftovers = sorted(each.name for each in models.iterdir() if each.name not in ("m.dsal", ".audit.jsonl"))
    return {
        "conditions": conditions_before, "seconds": round(time.monotonic() - began),
        "killed": len(seconds["SIGKILL"]), "terminated": len(seconds["SIGTERM"]),
        "lessons_acknowledged": len(teacher.acknowledged),
        "lessons_lost": lost, "lessons_doubled": doubled, "false_denials": false_denials,
        "images_in_the_end": [images, IMAGES * len(teacher.acknowledged)],
        "answers": dict(teacher.answers.most_common()), "grace": GRACE,
        "exit_ms": {name: {"median": milliseconds(some, 50), "slowest": milliseconds(some, 100)}
                    for name, some in seconds.items()},
        "leftovers_of_the_last_kill": leftovers,
    }  # fmt: skip
