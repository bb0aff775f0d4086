"""How fast ``dsal serve`` answers: throughput against the bare runtime, and latency while lessons are learned.

    python benchmarks/serve.py --images FOLDER --out benchmarks/results/serve.json

FOLDER holds photographs by class. The server runs in a process of its own, on loopback, with EfficientNet-Lite0; the
clients are threads of this process. The bare runtime is the backbone alone, on the same images decoded beforehand, in
as many threads as there are cores. Both take turns, several rounds; medians are reported.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import numpy as np

from dsal.backbones.hub import open_backbone
from dsal.data.decode import decode_image
from dsal.data.folder import images_below
from dsal.images.graph import WORTH_CONVERTING, graph_of

CONCURRENCY = 16
TOGETHER = 8


def bare(graph: Any, pixels: np.ndarray[Any, Any], seconds: float) -> tuple[float, float]:
    """Images a second of the backbone alone, four at a time in every thread, and CPU seconds an image."""
    until, cores = time.perf_counter() + seconds, os.cpu_count() or 1

    def run(thread: int) -> int:
        done = 0
        while time.perf_counter() < until:
            first = (4 * (thread + done)) % (len(pixels) - 4)
            graph(pixels[first : first + 4])
            done += 4
        return done

    start, used = time.perf_counter(), time.process_time()
    with ThreadPoolExecutor(cores) as pool:
        done = sum(pool.map(run, range(cores)))
    return done / (time.perf_counter() - start), (time.process_time() - used) / done


def cpu_seconds(pid: int) -> float:
    """CPU time that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def served(url: str, files: Sequence[bytes], seconds: float, together: int = 1) -> tuple[float, list[float]]:
    """Images a second of ``predict``, ``together`` in a request, and the latencies in seconds."""
    until, latencies = time.perf_counter() + seconds, []

    def run(thread: int) -> None:
        number = thread
        with httpx.Client(timeout=120) as client:
            while time.perf_counter() < until:
                number += CONCURRENCY
                start = time.perf_counter()
                some = [files[(number + i) % len(files)] for i in range(together)]
                answer = client.post(url, files=[("images", ("x.jpg", image)) for image in some])
                answer.raise_for_status()
                latencies.append(time.perf_counter() - start)

    start = time.perf_counter()
    with ThreadPoolExecutor(CONCURRENCY) as pool:
        list(pool.map(run, range(CONCURRENCY)))
    return together * len(latencies) / (time.perf_counter() - start), latencies


def teach(base: str, files: Sequence[bytes], stop: threading.Event, lessons: list[float]) -> None:
    """Lessons of twelve images, one after the other, until told to stop; each is undone again."""
    number = 0
    with httpx.Client(timeout=120) as client:
        while not stop.is_set():
            some = [files[(number + i) % len(files)] for i in range(12)]
            number += 12
            start = time.perf_counter()
            marked = [("images", ("x.jpg", image + bytes([number % 251]))) for image in some]  # not seen before
            client.post(f"{base}/learn", files=marked, data={"labels": f"more {number % 5}"}).raise_for_status()
            lessons.append(time.perf_counter() - start)
            client.post(f"{base}/undo").raise_for_status()


def measure(folder: Path, rounds: int, seconds: float) -> dict[str, Any]:
    """All figures."""
    paths = images_below(folder)[:256]
    files = [path.read_bytes() for path in paths]
    backbone = open_backbone("efficientnet-lite0")
    graph = graph_of(backbone, WORTH_CONVERTING)
    if graph is None:
        raise SystemExit("ONNX Runtime is needed: pip install 'dsal[lite,onnx]'")
    pixels = np.stack([decode_image(path, backbone.card.size) for path in paths])
    with tempfile.TemporaryDirectory() as models:
        command = [sys.executable, "-m", "dsal", "serve", "--models", models, "--port", "0"]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        try:
            assert process.stdout is not None
            base = f"{process.stdout.readline().strip()}api/models/bench"
            for label in sorted({path.parent.name for path in paths})[:4]:
                some = [("images", ("x.jpg", p.read_bytes())) for p in paths if p.parent.name == label][:12]
                httpx.post(f"{base}/learn", files=some, data={"labels": label}, timeout=120).raise_for_status()
            served(f"{base}/predict", files, 2.0)  # warm
            ratios, together, rates, costs, quiet, busy, lessons = [], [], [], [], [], [], []
            for _ in range(rounds):
                alone, cost = bare(graph, pixels, seconds)
                used = cpu_seconds(process.pid)
                rate, latencies = served(f"{base}/predict", files, seconds)
                costs.append((cost, (cpu_seconds(process.pid) - used) / len(latencies)))
                quiet += latencies
                rates.append((alone, rate))
                ratios.append(rate / alone)
                together.append(served(f"{base}/predict", files, seconds, TOGETHER)[0] / alone)
                stop = threading.Event()
                teacher = threading.Thread(target=teach, args=(base, files, stop, lessons))
                teacher.start()
                busy += served(f"{base}/predict", files, seconds)[1]
                stop.set()
                teacher.join()
        finally:
            process.terminate()
            process.wait()

    def tail(values: list[float]) -> dict[str, float]:
        return {name: round(float(np.percentile(values, q)), 4) for name, q in (("p50", 50), ("p99", 99))}

    return {
        "throughput": {
            "bare_images_per_second": round(statistics.median(a for a, _ in rates), 1),
            "served_images_per_second": round(statistics.median(s for _, s in rates), 1),
            "ratio_median": round(statistics.median(ratios), 3),
            "bare_cpu_ms_per_image": round(1000 * statistics.median(b for b, _ in costs), 2),
            "served_cpu_ms_per_image": round(1000 * statistics.median(s for _, s in costs), 2),
            "ratio_rounds": [round(ratio, 3) for ratio in ratios],
            f"ratio_rounds_{TOGETHER}_images_a_request": [round(ratio, 3) for ratio in together],
        },
        "latency_seconds": {
            "without_lessons": tail(quiet),
            "while_lessons_are_learned": tail(busy),
            "p99_ratio": round(float(np.percentile(busy, 99) / np.percentile(quiet, 99)), 2),
            "requests": [len(quiet), len(busy)],
            "lessons": len(lessons),
            "lesson_seconds_median": round(statistics.median(lessons), 2) if lessons else None,
        },
        "conditions": {
            "concurrency": CONCURRENCY,
            "rounds": rounds,
            "seconds_a_round": seconds,
            "images": len(files),
            "mean_bytes": round(statistics.mean(map(len, files))),
            "expansion_size": 2048,
            "cores": os.cpu_count(),
            "processor": _processor(),
            "load_average": os.getloadavg(),
            "python": platform.python_version(),
        },
    }


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor()


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--images", type=Path, required=True)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=10.0)
    options = parser.parse_args()
    found = json.dumps(measure(options.images, options.rounds, options.seconds), indent=2)
    print(found)
    if options.out is not None:
        options.out.write_text(found + "\n")


if __name__ == "__main__":
    main()
