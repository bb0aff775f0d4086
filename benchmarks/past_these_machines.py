"""What a billion rows and 20,000 classes would cost: arithmetic, not a measurement; a table of docs/distributed.md.

Per stream and phase, with n rows, d = d_B, c classes, f features per row:

    expansion 2 n f d, Gram matrix n d^2 a triangle, Q 2 n d c (one-hot targets as a dense product) flops
    compensation stream, in addition: residue 2 n d c
    sent by each rank  8 (d^2 / 2 + d c) bytes a stream, and W back: 8 d c
    rank 0 alone       factor d^3 / 3, solve 2 d^2 c
    memory of a rank   8 (d^2 + 3 d c) bytes a stream

Rates: the CPU's are measured (benchmarks/results/distributed.json, two threads). The GPU's are the float64 tensor-core
peak of NVIDIA's data sheet for the H100 SXM, 67 Tflop/s, and 50 GB/s for a 400 Gb/s link, each times an assumed 0.6.
"""

from __future__ import annotations

import json
from pathlib import Path

RESULTS = Path(__file__).parent / "results" / "distributed.json"
ROWS, CLASSES, FEATURES = 1e9, 20_000, 1152
WIDTHS = (8192, 16384, 32768, 65536)
GPUS = 64
EFFICIENCY, GPU_FLOPS, LINK_BYTES, GPU_MEMORY = 0.6, 67e12, 50e9, 80e9


def cost(d: int, triangles: int = 2) -> dict[str, float]:
    """Return flops of all rows, flops of rank 0 alone, bytes that a rank sends, and bytes of its memory: both streams.

    PyTorch computes both triangles of a Gram matrix on a GPU, LAPACK one on a CPU.
    """
    n, c, f = ROWS, CLASSES, FEATURES
    main = 2 * n * f * d + triangles * n * d**2 + 2 * n * d * c
    comp = 2 * n * f * d + triangles * n * d**2 + 4 * n * d * c
    return {
        "rows": main + comp,
        "alone": 2 * (d**3 / 3 + 2 * d**2 * c),
        "sent": 2 * 8 * (d**2 / 2 + 2 * d * c),
        "memory": 2 * 8 * (d**2 + 3 * d * c),
    }


def seconds(d: int, ranks: int) -> dict[str, float]:
    """Return the seconds of GPUs: rows divided over ranks, communication, rank 0 alone."""
    found, rate = cost(d), EFFICIENCY * GPU_FLOPS
    return {
        "rows": found["rows"] / ranks / rate,
        "sent": found["sent"] / (EFFICIENCY * LINK_BYTES),
        "alone": found["alone"] / rate,
    }


def even_ranks(d: int) -> float:
    """Return the number of ranks at which rank 0 alone takes as long as all rows."""
    found = cost(d)
    return found["rows"] / found["alone"]


def cpu_rate() -> float:
    """Return flops per second of accumulating rows on two cores, as measured."""
    runs = json.loads(RESULTS.read_text(encoding="utf-8"))["runs"]
    return float(next(run for run in runs if (run["processes"], run["threads"]) == (1, 2))["rates"]["accumulate"])


def table() -> str:
    """Return the table in Markdown."""
    lines = [
        f"| d_B | Pflop | years on two cores | hours on {GPUS} GPUs | rank 0 alone, s | sent by a rank, GB | s for it "
        "| memory of a rank, GB | ranks until rank 0 is half |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for d in WIDTHS:
        found, took = cost(d), seconds(d, GPUS)
        years = cost(d, triangles=1)["rows"] / cpu_rate() / 3600 / 24 / 365
        cells = [
            str(d), f"{found['rows'] / 1e15:,.0f}", f"{years:.1f}", f"{took['rows'] / 3600:.2f}",
            f"{took['alone']:.1f}", f"{found['sent'] / 1e9:.1f}", f"{took['sent']:.2f}",
            f"{found['memory'] / 1e9:.0f}", f"{even_ranks(d):,.0f}",
        ]  # fmt: skip
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


if __name__ == "__main__":
    print(table())
