"""Damaged uploads: model files, with and without a graph, by bytes and by contents with every checksum made right."""

from __future__ import annotations

import os
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import httpx
import numpy as np
from benchmarks.attack.kills import picture, small_backbone
from benchmarks.attack.served import Server, Watch, conditions, files, milliseconds, photograph
from onnx import TensorProto, helper, numpy_helper
from tests.fuzz.mutate import break_bytes, break_tensors

from dsal.backbones.graphs import onnx_backbone
from dsal.backbones.hub import open_backbone
from dsal.files.tensors import load_tensors, save_tensors
from dsal.image_model import ImageModel

_GRAPH = "backbone.network.graph"
_USES = (("POST", "/api/models/x/predict"), ("GET", "/api/models/x/info"), ("DELETE", "/api/models/x"))


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


def mutations(most: int, most_seconds: float) -> dict[str, Any]:
    """Upload damaged files to a server that accepts foreign graphs; ask and delete what it has accepted.

    In one of thirty the graph itself is damaged, and a process is started to try it.
    """
    os.environ["DSAL_ONNX"] = "0"  # converting networks would take all the time
    random, answers = np.random.default_rng(0), Counter[str]()
    slowest, wrong, seconds = "", list[str](), list[float]()
    before, began = conditions(), time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        work, good = Path(folder) / "broken.dsal", good_models(Path(folder))
        contents = {name: path.read_bytes() for name, path in good.items()}
        options = ("--allow-foreign-backbones", "--backbone", str(Path(folder) / "small.safetensors"))
        with (
            Server(Path(folder) / "models", *options) as server,
            httpx.Client(base_url=server.url, timeout=120) as client,
        ):
            for path in good.values():  # everything is loaded and warm
                client.put("/api/models/warm/file", content=path.read_bytes()).raise_for_status()
                client.post("/api/models/warm/predict", files=files([picture(0)])).raise_for_status()
                client.delete("/api/models/warm").raise_for_status()
            with Watch(server) as watch:
                for number in range(most):
                    if time.monotonic() > began + most_seconds:
                        break
                    kind = "graph inside" if number % 30 == 0 else ("network", "graph")[number % 2]
                    work.write_bytes(contents["network" if kind == "network" else "graph"])
                    try:
                        done = _break(work, kind, random)
                    except (ValueError, TypeError, OverflowError):  # it cannot be written as a file at all
                        done = break_bytes(work, random)
                    start = time.monotonic()
                    answer = client.put("/api/models/x/file", content=work.read_bytes())
                    statuses = [answer.status_code]
                    if answer.status_code == 201:
                        statuses += [_status(client, *request) for request in _USES]
                    seconds.append(time.monotonic() - start)
                    if seconds[-1] == max(seconds):
                        slowest = f"{kind}: {done}"
                    answers[f"{kind}: {statuses[0]}"] += 1
                    if any(status >= 500 for status in statuses):
                        wrong.append(f"{kind}: {done}: {statuses} {answer.text[:200]}")
    return {
        "conditions": before, "seconds": round(time.monotonic() - began), "files": len(seconds),
        "answers": dict(answers),
        **watch.found(), "grown_mb": round(watch.largest - watch.start), "p99_ms": milliseconds(seconds, 99),
        "slowest_ms": milliseconds(seconds, 100), "slowest": slowest, "status_5xx": wrong,
    }  # fmt: skip


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
