"""Speed of ``dsal serve``: throughput against the bare runtime, and latency under other load.

    python benchmarks/serve.py --images FOLDER    # about four minutes; writes benchmarks/results/serve.json
    python -m benchmarks.tables                   # shows the results in docs/serve.md

FOLDER holds photographs by class. The server runs in its own process, on loopback, with EfficientNet-Lite0. This
process sends requests, 16 at a time: decoded images as tensors, the files, and squares of 256 pixels such as the page
takes with the camera. The bare runtime is the backbone alone in ONNX Runtime, on the same images decoded beforehand, in
as many threads as there are cores. All take turns for several rounds; medians over the rounds are reported. Ratios are
of images per second, and of CPU time per image (including the load generator's own), which other programs disturb less.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from io import BytesIO
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import numpy as np
from load import Load, request, send
from PIL import Image, ImageOps

from dsal.backbones.pretrained import open_backbone
from dsal.data.images.decode import decode_image
from dsal.data.images.labelled_files import images_below
from dsal.image_model.graph_features import WORTH_CONVERTING, graph_of
from dsal.protocol.provenance import environment

CONCURRENCY = 16
IDLE = 1000
BATCH = 8
OUT = Path(__file__).parent / "results" / "serve.json"
FRAME = 256  # pixels, as in page/camera.js


@dataclass(frozen=True)
class Rate:
    """Images per second, and CPU milliseconds per image: of the process that computes, and of the load generator."""

    images_per_second: float
    cpu_ms: float
    generator_cpu_ms: float = 0.0


def bare(work: Callable[[int], int], seconds: float) -> Rate:
    """Measure how fast ``work(number)``, which returns the number of images done, runs in one thread per core."""
    until, cores = time.perf_counter() + seconds, os.cpu_count() or 1

    def run(thread: int) -> int:
        done = 0
        while time.perf_counter() < until:
            done += work(thread + done)
        return done

    start, used = time.perf_counter(), time.process_time()
    with ThreadPoolExecutor(cores) as pool:
        done = sum(pool.map(run, range(cores)))
    return Rate(done / (time.perf_counter() - start), 1000 * (time.process_time() - used) / done)


def served(pid: int, load: Callable[[], Load], together: int = 1) -> tuple[Rate, list[float]]:
    """Return the rate of a load on the server with this process id, and its latencies."""
    used = _cpu_seconds(pid)
    answered = load()
    images = together * len(answered.latencies)
    cpu = 1000 * (_cpu_seconds(pid) - used) / images
    return Rate(images / answered.seconds, cpu, 1000 * answered.cpu_seconds / images), answered.latencies


def files_request(url: str, files: Sequence[bytes]) -> bytes:
    """Return a request to predict image files."""
    form = httpx.Request("POST", url, files=[("images", ("x.jpg", file)) for file in files])
    return request(url, form.read(), Content_Type=form.headers["Content-Type"])


def camera_frame(file: bytes) -> bytes:
    """Return the middle of a photograph as the page would send it from the camera."""
    buffer = BytesIO()
    with Image.open(BytesIO(file)) as image:
        ImageOps.fit(image.convert("RGB"), (FRAME, FRAME)).save(buffer, "JPEG", quality=90)
    return buffer.getvalue()


def tensor_request(url: str, pixels: np.ndarray[Any, Any]) -> bytes:
    """Return a request to infer decoded images, as raw bytes."""
    tensor = {
        "name": "images",
        "datatype": "UINT8",
        "shape": pixels.shape,
        "parameters": {"binary_data_size": pixels.size},
    }
    head = json.dumps({"inputs": [tensor]}).encode()
    return request(url, head + pixels.tobytes(), Inference_Header_Content_Length=str(len(head)))


@contextmanager
def lessons(url: str, files: Sequence[bytes], seconds: list[float]) -> Iterator[None]:
    """Send lessons of twelve images, one after the other, and undo each; append the time of each to ``seconds``."""
    stop = threading.Event()

    def teach() -> None:
        number = 0
        with httpx.Client(timeout=120) as client:
            while not stop.is_set():
                some = [files[(number + i) % len(files)] for i in range(12)]
                number += 12
                start = time.perf_counter()
                marked = [("images", ("x.jpg", image + number.to_bytes(8, "big"))) for image in some]  # not seen before
                client.post(f"{url}/learn", files=marked, data={"labels": f"more {number % 5}"}).raise_for_status()
                seconds.append(time.perf_counter() - start)
                client.post(f"{url}/undo").raise_for_status()

    teacher = threading.Thread(target=teach)
    teacher.start()
    try:
        yield
    finally:
        stop.set()
        teacher.join()


@contextmanager
def idle_connections(url: str) -> Iterator[None]:
    """Open a thousand connections that send nothing."""
    parts = urlsplit(url)
    with ExitStack() as stack:
        for _ in range(IDLE):
            stack.enter_context(socket.create_connection((parts.hostname, parts.port)))
        yield


def measure(folder: Path, rounds: int, seconds: float) -> dict[str, Any]:
    """Measure everything."""
    before = os.getloadavg()
    paths = images_below(folder)
    paths = paths[:: max(len(paths) // 256, 1)][:256]
    files = [path.read_bytes() for path in paths]
    backbone = open_backbone("efficientnet-lite0")
    graph = graph_of(backbone, WORTH_CONVERTING)
    if graph is None:
        raise SystemExit("ONNX Runtime is needed: pip install 'dsal-learn[lite,onnx]'")
    size = backbone.card.size
    pixels = np.ascontiguousarray(np.stack([decode_image(path, size) for path in paths]))

    frames = [camera_frame(file) for file in files]

    def backbone_alone(number: int) -> int:
        first = number % (len(pixels) - BATCH)
        return len(graph(pixels[first : first + BATCH]))

    def with_decoding(number: int) -> int:
        return len(graph(np.stack([decode_image(files[(number + i) % len(files)], size) for i in range(BATCH)])))

    rates: dict[str, list[Rate]] = {}
    latencies: dict[str, list[float]] = {}
    taught: list[float] = []
    with tempfile.TemporaryDirectory() as models:
        command = [sys.executable, "-m", "dsal", "serve", "--models", models, "--port", "0"]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        try:
            assert process.stdout is not None
            root = process.stdout.readline().strip()
            api, infer = f"{root}api/models/bench", f"{root}v2/models/bench/infer"
            labels = sorted({path.parent.name for path in paths})[:4]
            for label in labels:
                some = [("images", ("x.jpg", p.read_bytes())) for p in images_below(folder / label)[:12]]
                httpx.post(f"{api}/learn", files=some, data={"labels": label}, timeout=120).raise_for_status()
            tensors = [tensor_request(infer, pixels[i : i + 1]) for i in range(len(pixels))]
            single = [files_request(f"{api}/predict", [file]) for file in files]
            squares = [files_request(f"{api}/predict", [frame]) for frame in frames]
            eights = [files_request(f"{api}/predict", files[i : i + 8]) for i in range(0, len(files) - 7, 8)]

            def run(name: str, requests: Sequence[bytes], together: int = 1) -> None:
                load = served(process.pid, lambda: send(root, requests, seconds, CONCURRENCY), together)
                rates.setdefault(name, []).append(load[0])
                latencies.setdefault(name, []).extend(load[1])

            send(root, single, 2.0, CONCURRENCY)  # warm
            for _ in range(rounds):
                rates.setdefault("bare", []).append(bare(backbone_alone, seconds))
                run("tensors", tensors)
                run("camera_frames", squares)
                rates.setdefault("bare_with_decoding", []).append(bare(with_decoding, seconds))
                run("files", single)
                run("files_eight_a_request", eights, 8)
                with idle_connections(root):
                    run("files_beside_idle_connections", single)
                with lessons(api, files, taught):
                    run("files_during_lessons", single)
        finally:
            process.terminate()
            process.wait()
    return {
        "rates": {name: _medians(of_rounds) for name, of_rounds in rates.items()},
        "ratios": {
            f"{name} / {base}": _ratios(rates[name], rates[base])
            for name, base in (
                ("tensors", "bare"),
                ("camera_frames", "bare"),
                ("files", "bare"),
                ("files_eight_a_request", "bare"),
                ("bare_with_decoding", "bare"),
                ("files", "bare_with_decoding"),
                ("files_eight_a_request", "bare_with_decoding"),
                ("files_beside_idle_connections", "files"),
            )
        },
        "latency_seconds": {name: _percentiles(values) for name, values in latencies.items()},
        "p99_during_lessons / p99": _p99(latencies["files_during_lessons"]) / _p99(latencies["files"]),
        "lessons": {"number": len(taught), "seconds_median": statistics.median(taught)},
        "conditions": {
            "concurrency": CONCURRENCY,
            "idle_connections": IDLE,
            "rounds": rounds,
            "seconds_a_round": seconds,
            "images": len(files),
            "mean_bytes": statistics.mean(map(len, files)),
            "mean_bytes_camera_frames": statistics.mean(map(len, frames)),
            "expansion_size": 2048,
            "cores": os.cpu_count(),
            "processor": _processor(),
            "load_average": {"before": before, "after": os.getloadavg()},
            "niceness": os.nice(0),
            "onnxruntime": version("onnxruntime"),
            **environment(),
        },
    }


def _cpu_seconds(pid: int) -> float:
    """Return the CPU time that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _medians(of_rounds: Sequence[Rate]) -> dict[str, float]:
    return {name: statistics.median(getattr(rate, name) for rate in of_rounds) for name in Rate.__annotations__}


def _ratios(one: Sequence[Rate], other: Sequence[Rate]) -> dict[str, Any]:
    pairs = list(zip(one, other, strict=True))
    ratios = [a.images_per_second / b.images_per_second for a, b in pairs]
    cpu = [(b.cpu_ms + b.generator_cpu_ms) / (a.cpu_ms + a.generator_cpu_ms) for a, b in pairs]
    return {"median": statistics.median(ratios), "rounds": ratios, "by_cpu_time": statistics.median(cpu)}


def _p99(values: Sequence[float]) -> float:
    return float(np.percentile(values, 99))


def _percentiles(values: Sequence[float]) -> dict[str, float]:
    return {"requests": len(values), "p50": float(np.percentile(values, 50)), "p99": _p99(values)}


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor()


def _rounded(value: Any) -> Any:
    """Return the same document with four significant digits."""
    if isinstance(value, dict):
        return {name: _rounded(entry) for name, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [_rounded(entry) for entry in value]
    return float(f"{value:.4g}") if isinstance(value, float) else value


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--images", type=Path, required=True)
    parser.add_argument("--out", type=Path, default=OUT)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=5.0)
    options = parser.parse_args()
    found = json.dumps(_rounded(measure(options.images, options.rounds, options.seconds)), indent=2)
    print(found)
    options.out.write_text(found + "\n")


if __name__ == "__main__":
    main()
