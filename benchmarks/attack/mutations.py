"""Damaged uploads: model files, with and without a graph, by bytes and by contents with every checksum made right."""

from __future__ import annotations

import os
import tempfile
import time
from collections import Counter
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import numpy as np
from benchmarks.attack.kills import picture, small_backbone
from benchmarks.attack.served import Server, Watch, conditions, files, milliseconds, photograph
from onnx import TensorProto, helper, numpy_helper
from tests.fuzz.mutate import break_bytes, break_tensors

from dsal.backbones.graphs import onnx_backbone
from dsal.backbones.pretrained import open_backbone
from dsal.files.tensors import load_tensors, save_tensors
from dsal.image_model import ImageModel

_GRAPH = "backbone.network.graph"
_MEMORY = Path("/dev/shm")


def good_models(folder: Path) -> dict[str, Path]:
    """Write a small model with a network of our own, and one with a graph."""
    labels = ["a", "a", "b", "b"]
    network = ImageModel(open_backbone(str(small_backbone(folder / "small.safetensors"))), expansion_size=16)
    network.learn(([picture(number) for number in range(4)], labels))
    steps = (("Conv", ["images", "weight"], "maps"), ("GlobalAveragePool", ["maps"], "pooled"),
             ("Flatten", ["pooled"], "features"))  # fmt: skip
    weight = np.random.default_rng(0).standard_normal((8, 3, 3, 3)).astype(np.float32)
    graph = helper.make_graph(
        [helper.make_node(name, inputs, [output]) for name, inputs, output in steps], "extractor",
        [helper.make_tensor_value_info("images", TensorProto.FLOAT, ("n", 3, 32, 32))],
        [helper.make_tensor_value_info("features", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(weight, "weight")],
    )  # fmt: skip
    onnx = folder / "small.onnx"
    onnx.write_bytes(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9).SerializeToString()
    )
    foreign = ImageModel(onnx_backbone(onnx), expansion_size=16)
    foreign.learn(([photograph(number, 64, 48) for number in range(4)], labels))
    paths = {"network": folder / "network.dsal", "graph": folder / "graph.dsal"}
    network.save(paths["network"])
    foreign.save(paths["graph"])
    return paths


def break_graph(path: Path, random: np.random.Generator) -> None:
    """Change bytes of the graph inside a model file, and make its checksums right again."""
    arrays, facts = load_tensors(path)
    graph = bytearray(arrays[_GRAPH].tobytes())
    for _ in range(int(random.integers(1, 4))):
        graph[int(random.integers(len(graph)))] = int(random.integers(256))
    arrays[_GRAPH] = np.frombuffer(bytes(graph), np.uint8)
    save_tensors(path, {name: np.asarray(array) for name, array in arrays.items()}, facts)


class Mutator:
    """Uploads damaged files, and asks and deletes what the server has accepted.

    Args:
        url: address of the server.
        name: name of the models.
        seed: seed of the damage.
        folder: folder for the files.
        contents: good files, by kind.
    """

    def __init__(self, url: str, name: str, seed: int, folder: Path, contents: dict[str, bytes]) -> None:
        self.url, self.name, self.contents = url, name, contents
        self.random, self.work = np.random.default_rng(seed), folder / f"{name}.dsal"
        self.answers, self.reached = Counter[str](), Counter[str]()
        self.wrong: list[str] = []
        self.seconds: list[tuple[float, str]] = []

    def run(self, numbers: Iterable[int]) -> None:
        """Upload a file for each number."""
        with httpx.Client(base_url=self.url, timeout=120) as client:
            for number in numbers:
                self._step(client, "graph inside" if number % 30 == 0 else ("network", "graph")[number % 2])

    def _step(self, client: httpx.Client, kind: str) -> None:
        self.work.write_bytes(self.contents["network" if kind == "network" else "graph"])
        try:
            done = _break(self.work, kind, self.random)
        except (ValueError, TypeError, OverflowError):  # it cannot be written as a file at all
            done = break_bytes(self.work, self.random)
        start, path = time.monotonic(), f"/api/models/{self.name}"
        answer = client.put(f"{path}/file", content=self.work.read_bytes())
        statuses = [answer.status_code]
        if answer.status_code == 201:
            uses = (("POST", f"{path}/predict"), ("GET", f"{path}/info"), ("DELETE", path))
            statuses += [_status(client, *request) for request in uses]
        self.seconds.append((time.monotonic() - start, f"{kind}: {done}"))
        self.answers[f"{kind}: {statuses[0]}"] += 1
        self.reached[_stage(answer)] += 1
        if any(status >= 500 for status in statuses):
            self.wrong.append(f"{kind}: {done}: {statuses} {answer.text[:200]}")


def mutations(most: int, seed: int, most_seconds: float) -> dict[str, Any]:
    """Upload damaged files from two clients to a server that accepts foreign graphs.

    In one of thirty the graph itself is damaged. Files lie in memory where the system allows it.
    """
    os.environ["DSAL_ONNX"] = "0"  # converting networks would take all the time
    before, began = conditions(), time.monotonic()
    with tempfile.TemporaryDirectory(dir=_MEMORY if _MEMORY.is_dir() else None) as folder:
        good = good_models(Path(folder))
        contents = {name: path.read_bytes() for name, path in good.items()}
        options = ("--allow-foreign-backbones", "--backbone", str(Path(folder) / "small.safetensors"))
        with Server(Path(folder) / "models", *options) as server:
            with httpx.Client(base_url=server.url, timeout=120) as client:
                for content in contents.values():  # everything is loaded and warm
                    client.put("/api/models/warm/file", content=content).raise_for_status()
                    client.post("/api/models/warm/predict", files=files([picture(0)])).raise_for_status()
                    client.delete("/api/models/warm").raise_for_status()
            numbers = iter(range(most))
            until = time.monotonic() + most_seconds
            left = iter(lambda: next(numbers, None) if time.monotonic() < until else None, None)
            mutators = [
                Mutator(server.url, f"x{client}", 2 * seed + client, Path(folder), contents) for client in range(2)
            ]
            with Watch(server) as watch, ThreadPoolExecutor(2) as pool:
                for ended in [pool.submit(mutator.run, left) for mutator in mutators]:
                    ended.result()
    seconds = sorted(each for mutator in mutators for each in mutator.seconds)
    return {
        "conditions": before, "seconds": round(time.monotonic() - began), "seed": seed, "files": len(seconds),
        "clients": 2,
        "answers": dict(sum((mutator.answers for mutator in mutators), Counter())),
        "ended_at": dict(sum((mutator.reached for mutator in mutators), Counter())),
        **watch.found(), "grown_mb": round(watch.largest - watch.start),
        "p99_ms": milliseconds([time for time, _ in seconds], 99), "slowest_ms": round(1000 * seconds[-1][0], 1),
        "slowest": seconds[-1][1], "status_5xx": [each for mutator in mutators for each in mutator.wrong],
    }  # fmt: skip


def _stage(answer: httpx.Response) -> str:
    """Return what has refused a file."""
    if answer.status_code == 201:
        return "accepted"
    if answer.status_code != 422:
        return f"{answer.status_code}"
    error = answer.json()["error"]
    if "not accepted as a backbone" in error:
        return "the trial of its graph" if "a trial" in error or "ONNX Runtime" in error else "the check of its graph"
    return "its checksum" if "does not match" in error else "its format or its values"


def _status(client: httpx.Client, method: str, path: str) -> int:
    """Return the status of a request; 599 if the connection is lost."""
    try:
        sent = files([picture(0)]) if method == "POST" else None
        return client.request(method, path, files=sent).status_code
    except httpx.TransportError:
        return 599


def _break(path: Path, kind: str, random: np.random.Generator) -> str:
    if kind == "graph inside":
        break_graph(path, random)
        return "bytes of the graph"
    return break_tensors(path, random) if random.random() < 0.5 else break_bytes(path, random)
