"""Two thousand lessons in one process: memory, open files and threads stay what they were."""

from __future__ import annotations

import gc
import threading
from pathlib import Path

import numpy as np
import pytest
from threadpoolctl import threadpool_limits

from dsal.backbones import load_backbone
from dsal.image_model import ImageModel

MEGABYTES = 24  # that memory may grow: the allocator's own moods, and 16 bytes for each image seen


def use() -> tuple[float, int, int]:
    """Resident memory in MB, open files, and threads of this process."""
    gc.collect()
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return int(status["VmRSS"].split()[0]) / 1024, len(list(Path("/proc/self/fd").iterdir())), int(status["Threads"])


def lessons(weights: Path, path: Path, warm: int, many: int) -> None:
    """Learn single images, asking and saving now and then; compare what is in use after ``warm`` and ``many``."""
    random = np.random.default_rng(0)
    model = ImageModel(load_backbone(weights), expansion_size=600)
    with threadpool_limits(2, user_api="blas"):  # more than one tile and more than one thread
        for number in range(many):
            pixels = random.integers(0, 256, (2, 28, 28), dtype=np.uint8)
            model.learn((pixels, [f"class {number % 5}", f"class {(number + 1) % 5}"]))
            if number % 20 == 0:
                model.predict(list(pixels))
                model.save(path)
            if number == warm:
                before = use()
        after = use()
    assert after[0] - before[0] < MEGABYTES, f"{before[0]:.0f} MB became {after[0]:.0f} MB"
    assert after[1] == before[1]
    assert after[2] <= before[2]
    assert threading.active_count() < 20


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="counts as Linux does")
def test_lessons_leak_no_threads_and_no_files(weights: Path, tmp_path: Path) -> None:
    lessons(weights, tmp_path / "m.dsal", 60, 100)  # from fifty lessons on, the history for undo is full


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="counts as Linux does")
def test_two_thousand_lessons(weights: Path, tmp_path: Path) -> None:
    lessons(weights, tmp_path / "m.dsal", 300, 2000)
