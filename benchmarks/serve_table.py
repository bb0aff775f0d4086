"""The results of benchmarks/serve.py as the table and sentences of docs/serve.md."""

from __future__ import annotations

import json
from pathlib import Path
from textwrap import fill
from typing import Any

ROWS = {
    "bare": "bare runtime, decoded images",
    "tensors": "decoded images (`/v2/.../infer`)",
    "camera_frames": "camera frames, 256 pixels (`predict`)",
    "files": "photographs (`predict`)",
    "files_eight_a_request": "photographs, eight per request",
    "bare_with_decoding": "bare runtime with decoding of photographs",
}


def serve_table(path: Path) -> str:
    """Return the speed of the server, relative to the bare runtime, and the conditions of the measurement."""
    found = json.loads(path.read_text(encoding="utf-8"))
    rates, ratios = found["rates"], found["ratios"]
    table = [
        "| one image per request, unless stated | images/s | CPU ms per image | of the bare runtime | by CPU time |",
        "|---|---:|---:|---:|---:|",
    ]
    for name, title in ROWS.items():
        ratio = ratios.get(f"{name} / bare", {})
        shares = [f"{ratio[kind]:.2f}" if kind in ratio else "" for kind in ("median", "by_cpu_time")]
        rate = rates[name]
        table.append(f"| {title} | {rate['images_per_second']:.0f} | {rate['cpu_ms']:.1f} | {' | '.join(shares)} |")
    parts = [_wrapped(_conditions(found)), "\n".join(table), _wrapped(_latency(found))]
    return "\n\n".join(parts) + "\n"


def _conditions(found: dict[str, Any]) -> str:
    of, bare = found["conditions"], found["rates"]["bare"]
    used = bare["images_per_second"] * bare["cpu_ms"] / 1000
    sizes = [of[name] / 1000 for name in ("mean_bytes", "mean_bytes_camera_frames")]
    named = {"Python": of["python"], "ONNX Runtime": of.get("onnxruntime"), "commit": of.get("commit", "")[:12]}
    versions = ", ".join(f"{name} {value}" for name, value in named.items() if value)
    return (
        f"[Medians](../benchmarks/results/serve.json) of {of['rounds']} rounds of {of['seconds_a_round']:g} s; "
        f"{of['concurrency']} clients; {of['images']} photographs of {sizes[0]:.0f} kB, camera frames of "
        f"{sizes[1]:.0f} kB; EfficientNet-Lite0, d_B = {of['expansion_size']}. {of['processor']}, {of['cores']} cores, "
        f"of which the bare runtime could use {used:.2f}; {versions}. {of.get('note', '')}"
    )


def _latency(found: dict[str, Any]) -> str:
    alone, beside = (found["latency_seconds"][name]["p99"] for name in ("files", "files_during_lessons"))
    idle, of = found["ratios"]["files_beside_idle_connections / files"]["median"], found["conditions"]
    return (
        f"While lessons are learned one after the other, the 99th percentile of the latency of `predict` is "
        f"{beside:.2f} s, {found['p99_during_lessons / p99']:.1f} times that without them ({alone:.2f} s). Beside "
        f"{of['idle_connections']} silent connections, the throughput is {idle:.2f} times that without them."
    )


def _wrapped(text: str) -> str:
    return fill(text, 120, break_on_hyphens=False, break_long_words=False)
