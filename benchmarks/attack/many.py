"""1,000 models of 30 MB in one folder: listed, and used in turn."""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path
from typing import Any

import httpx
from benchmarks.attack.served import Server, Watch, conditions, files, milliseconds, photograph

from dsal.backbones.pretrained import DEFAULT, open_backbone
from dsal.image_model import ImageModel

DISTINCT = 20  # files; the others are further links to them, which the server cannot know
SIZE = 350  # d_B: with the backbone, about 30 MB


def many(models: int, memory: str, most_seconds: float) -> dict[str, Any]:
    """List the models and ask each once; then some of them again, the last first; stop after a time."""
    before, began = conditions(), time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "models"
        place.mkdir()
        backbone = open_backbone(DEFAULT)
        for number in range(DISTINCT):
            model = ImageModel(backbone, expansion_size=SIZE, seed=number)
            model.learn(([photograph(4 * number + i) for i in range(4)], ["a", "a", "b", "b"]))
            model.save(place / f"model {number}.dsal")
        for number in range(DISTINCT, models):
            os.link(place / f"model {number % DISTINCT}.dsal", place / f"model {number}.dsal")
        size = (place / "model 0.dsal").stat().st_size
        listed, asked, held, wrong = list[float](), list[float](), list[float](), 0
        order = [*range(models), *range(models - 1, models - models // 10, -1)]
        with (
            Server(place, "--memory", memory) as server,
            Watch(server) as watch,
            httpx.Client(base_url=server.url, timeout=120) as client,
        ):
            for step, number in enumerate(order):
                if time.monotonic() > began + most_seconds:
                    break
                if step % 100 == 0:
                    start = time.perf_counter()
                    wrong += len(client.get("/api/models").json()["models"]) != models
                    listed.append(time.perf_counter() - start)
                    held.append(round(server.resident()))
                image = photograph(number % DISTINCT * 4)
                start = time.perf_counter()
                answer = client.post(f"/api/models/model {number}/predict", files=files([image]))
                asked.append(time.perf_counter() - start)
                wrong += answer.status_code != 200
    return {
        "conditions": before, "seconds": round(time.monotonic() - began), "memory": memory, "models": models,
        "distinct_files": DISTINCT, "megabytes_each": round(size / 2**20, 1), "used": len(asked), "wrong": wrong,
        **watch.found(), "resident_mb_every_100": held, "list_ms": milliseconds(listed, 50),
        "first_use_ms": milliseconds(asked, 50), "slowest_use_ms": milliseconds(asked, 100),
    }  # fmt: skip
