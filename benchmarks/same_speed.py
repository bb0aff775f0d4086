"""Whether two versions of dsal are equally fast: the same work in both, by turns, on one machine.

    python benchmarks/same_speed.py OLD/src NEW/src    # about five minutes; writes benchmarks/results/same-speed.json

Each version works in processes of its own; every round begins with the other one. The file is written after each kind
of work, so what was measured stays if the rest is stopped. Learning: ``DSALClassifier`` on features of CIFAR-100, half
of the classes first, then phases of 500 rows. Predicting: ``dsal predict`` of one photograph, from the start of the
process to its end. Features: of 256 photographs, pieces of two, with EfficientNet-Lite0 in ONNX Runtime. Serving:
decoded images, one per request, 16 at a time, against the bare runtime as in ``serve.py``. Seconds are medians, ratios
medians over rounds: of the time on the clock, which needs a machine without other work, and of CPU time, which other
programs disturb less.

The arrangement in rooms (0.3.0) at 2467c20 against the commit before it, 9725300, one thread, beside programs that left
a tenth of a processor (load 9 on two): only CPU time says something, and not to a few percent. Learning takes 0.98
of the CPU time at d_B 2048 and 1.04 (one round) at 8192, features 1.00, ``dsal predict`` 1.11 (four rounds). A server's
decoded image takes 7.3 ms where the old server takes 6.7 and the bare runtime 5.7: 0.77 of the bare runtime instead of
0.85. Of that, one entry per endpoint (8404656) costs 0.2 ms, measured in the same way; what came after it, before
2033b13, the rest. It has not been measured on an idle machine.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from PIL import Image

OUT = Path(__file__).parent / "results" / "same-speed.json"
LEARNING = {2048: (5000, 5), 8192: (1000, 1)}  # d_B: rows of the first phase, later phases
ROUNDS = {"learn 2048": 7, "predict": 9, "features": 7, "serve": 5, "learn 8192": 3}
SECONDS = 3.0  # of a round of serving
Time = tuple[float, float]  # seconds on the clock, CPU seconds


def pieces(folder: Path) -> list[Path]:
    """Write 256 pieces of two photographs, in four classes; return their paths."""
    from sklearn.datasets import load_sample_images

    for photo, pixels in zip(("china", "flower"), load_sample_images().images, strict=True):
        for half in range(2):
            place = folder / f"{photo}-{half}"
            place.mkdir()
            for number in range(64):
                left, upper = 160 * half + 20 * (number % 8), 15 * (number // 8)
                Image.fromarray(pixels[upper : upper + 320, left : left + 320]).save(place / f"{number}.jpg")
    return sorted(folder.glob("*/*.jpg"))


def learn(size: int, x: np.ndarray[Any, Any], y: np.ndarray[Any, Any]) -> None:
    """Learn a first phase of 50 classes and some phases of five more."""
    from dsal import DSALClassifier

    base, phases = LEARNING[size]
    model = DSALClassifier(expansion_size=size)
    first = np.flatnonzero(y < 50)[:: 25000 // base]
    model.partial_fit(x[first], y[first])
    for start in range(50, 50 + 5 * phases, 5):
        rows = np.flatnonzero((y >= start) & (y < start + 5))[::5]
        model.partial_fit(x[rows], y[rows])


def work(folder: Path) -> None:
    """Do what each line of standard input names; answer with seconds and CPU seconds."""
    from dsal import ImageFeatures
    from dsal.data import load_features

    data = load_features("cifar100-features", None)
    x, y = np.asarray(data.train_x), np.asarray(data.train_y)
    paths, features = sorted(folder.glob("*/*.jpg")), ImageFeatures().fit()
    kinds: dict[str, Callable[[], object]] = {f"learn {size}": lambda size=size: learn(size, x, y) for size in LEARNING}
    kinds["features"] = lambda: features.transform(paths)
    for line in sys.stdin:
        start, used = time.perf_counter(), time.process_time()
        kinds[line.strip()]()
        print(json.dumps([time.perf_counter() - start, time.process_time() - used]), flush=True)


class Version:
    """One version of dsal: the folder of its sources, and its processes."""

    def __init__(self, source: Path, folder: Path, stack: ExitStack) -> None:
        self.source, self.folder, self.stack = source, folder, stack
        self.environment = {**os.environ, "PYTHONPATH": str(source)}
        self.worker = self.start(sys.executable, __file__, "--work", folder)
        self.model = folder.parent / f"{source.parent.name}.dsal"
        self.command("learn", folder, "--model", self.model)

    def start(self, *arguments: object) -> subprocess.Popen[str]:
        """Start a process that ends with the measurement."""
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
        process = subprocess.Popen(list(map(str, arguments)), env=self.environment, text=True, **pipes)  # type: ignore[call-overload]
        self.stack.callback(process.wait)
        self.stack.callback(process.terminate)
        return process  # type: ignore[no-any-return]

    def command(self, *arguments: object) -> None:
        """Run a command of dsal."""
        told = [sys.executable, "-m", "dsal", *map(str, arguments)]
        subprocess.run(told, env=self.environment, check=True, capture_output=True)

    def seconds(self, kind: str) -> Time:
        """Return the time of one kind of work."""
        if kind == "predict":
            start, used = time.perf_counter(), _children()
            self.command("predict", self.model, next(self.folder.glob("*/*.jpg")))
            return time.perf_counter() - start, _children() - used
        assert self.worker.stdin is not None
        assert self.worker.stdout is not None
        print(kind, file=self.worker.stdin, flush=True)
        wall, cpu = json.loads(self.worker.stdout.readline())
        return wall, cpu

    @property
    def commit(self) -> str:
        """The commit of the sources."""
        told = ["git", "-C", str(self.source), "rev-parse", "--short", "HEAD"]
        return subprocess.run(told, check=True, capture_output=True, text=True).stdout.strip()


def _children() -> float:
    """Return the CPU seconds of finished processes."""
    times = os.times()
    return times.children_user + times.children_system


def turns(kind: str, versions: Sequence[Version], rounds: int) -> list[list[Time]]:
    """Return the times of both versions, round by round."""
    found = []
    for number in range(rounds):
        order = (0, 1) if number % 2 == 0 else (1, 0)
        taken = {place: versions[place].seconds(kind) for place in order}
        found.append([taken[0], taken[1]])
    return found


@contextmanager
def server(version: Version, paths: Sequence[Path]) -> Iterator[tuple[int, str]]:
    """Serve a model of four classes; yield the number of the process and its address."""
    import httpx

    with TemporaryDirectory() as models:
        process = version.start(sys.executable, "-m", "dsal", "serve", "--models", models, "--port", 0)
        assert process.stdout is not None
        root = process.stdout.readline().strip()
        for label in sorted({path.parent.name for path in paths}):
            files = [("images", ("x.jpg", path.read_bytes())) for path in paths if path.parent.name == label][:12]
            url = f"{root}api/models/bench/learn"
            httpx.post(url, files=files, data={"labels": label}, timeout=120).raise_for_status()
        try:
            yield process.pid, root
        finally:
            process.terminate()
            process.wait()


def serving(versions: Sequence[Version], paths: Sequence[Path], rounds: int) -> list[list[Time]]:
    """Return the time of an image of the bare runtime and of both servers, round by round."""
    from load import send

    from dsal.backbones.pretrained import open_backbone
    from dsal.data.images.decode import decode_image
    from dsal.image_model.graph_features import WORTH_CONVERTING, graph_of
    from serve import BATCH, CONCURRENCY, bare, served, tensor_request

    backbone = open_backbone("efficientnet-lite0")
    graph = graph_of(backbone, WORTH_CONVERTING)
    if graph is None:
        raise SystemExit("ONNX Runtime is needed: pip install 'dsal-learn[lite,onnx]'")
    pixels = np.ascontiguousarray(np.stack([decode_image(path, backbone.card.size) for path in paths]))

    def alone(number: int) -> int:
        first = number % (len(pixels) - BATCH)
        return len(graph(pixels[first : first + BATCH]))

    found = []
    with server(versions[0], paths) as old, server(versions[1], paths) as new:
        requests = {
            root: [tensor_request(f"{root}v2/models/bench/infer", pixels[i : i + 1]) for i in range(len(pixels))]
            for _, root in (old, new)
        }
        for number in range(-1, rounds):  # the first round warms up
            rates = {"": bare(alone, SECONDS)}
            for pid, root in (old, new) if number % 2 == 0 else (new, old):
                rates[root], _ = served(pid, lambda root=root: send(root, requests[root], SECONDS, CONCURRENCY))  # type: ignore[misc]
            of_round = [rates[""], rates[old[1]], rates[new[1]]]
            if number >= 0:
                found.append([(1 / r.images_per_second, (r.cpu_ms + r.generator_cpu_ms) / 1000) for r in of_round])
    return found


def compared(rounds: Sequence[Sequence[Time]], names: Sequence[str] = ("old", "new")) -> dict[str, Any]:
    """Return medians and all rounds, of seconds and of CPU seconds, and how much faster each is than the first.

    >>> compared([[(2.0, 3.0), (1.0, 3.0)]])["cpu_seconds"]
    {'old': 3.0, 'new': 3.0, 'old / new': 1.0, 'rounds': [[3.0, 3.0]]}
    """
    found = {}
    for place, kind in enumerate(("seconds", "cpu_seconds")):
        times = [[time[place] for time in of_round] for of_round in rounds]
        first, *others = names
        found[kind] = {
            **{name: statistics.median(column) for name, column in zip(names, zip(*times, strict=True), strict=True)},
            **{
                f"{first} / {name}": statistics.median(row[0] / row[number] for row in times)
                for number, name in enumerate(others, start=1)
            },
            "rounds": times,
        }
    return found


def measure(old: Path, new: Path, out: Path) -> None:
    """Measure everything."""
    from dsal.protocol.provenance import environment

    before = os.getloadavg()
    with TemporaryDirectory() as place, ExitStack() as stack:
        (folder := Path(place, "photos")).mkdir()
        paths = pieces(folder)
        versions = [Version(source.resolve(), folder, stack) for source in (old, new)]
        document: dict[str, Any] = {
            "conditions": {
                "commits": {"old": versions[0].commit, "new": versions[1].commit},
                "processors": os.cpu_count(),
                "niceness": os.nice(0),
                **environment(),
            },
        }
        for kind in ("learn 2048", "features", "predict"):  # warm
            turns(kind, versions, 1)
        for kind, rounds in ROUNDS.items():
            if kind == "serve":
                document[kind] = compared(serving(versions, paths, rounds), ("bare", "old", "new"))
            else:
                document[kind] = compared(turns(kind, versions, rounds))
            document["conditions"]["load"] = {"before": before, "after": os.getloadavg()}
            out.write_text(json.dumps(rounded(document), indent=1) + "\n", encoding="utf-8")


def rounded(value: Any) -> Any:
    """Return the same document with four significant digits."""
    if isinstance(value, dict):
        return {name: rounded(entry) for name, entry in value.items()}
    if isinstance(value, list | tuple):
        return [rounded(entry) for entry in value]
    return float(f"{value:.4g}") if isinstance(value, float) else value


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sources", nargs="*", type=Path, help="folders of sources: the old version, the new one")
    parser.add_argument("--out", type=Path, default=OUT)
    parser.add_argument("--work", type=Path, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.work is not None:
        work(asked.work)
        return
    measure(*asked.sources, asked.out)


if __name__ == "__main__":
    main()
