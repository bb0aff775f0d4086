"""Bytes and errors of short and masked messages of clients: a table of docs/distributed.md.

    python benchmarks/federated.py [--sizes 1024,2048] [--json benchmarks/results/federated.json]

Three clients share 2,000 training rows of the embedded CIFAR-100 features; main stream only, gamma 0.1. Nothing goes
over a network.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

from dsal import DSALClassifier
from dsal.data import load_features
from dsal.errors import DSALError
from dsal.integrations.federation import (
    ClientSums,
    agreed,
    facts_of,
    model_of,
    part_of,
    part_of_sums,
    request,
    sums_of,
)
from dsal.integrations.masking import masked, new_keys, unmasked

CLIENTS, ROWS, TESTED = 3, 2000, 1000
PLAIN: dict[str, dict[str, Any]] = {
    "float64": {},
    "float32": {"dtype": "float32"},
    "tolerance 1e-3": {"tolerance": 1e-3},
    "tolerance 1, float32": {"tolerance": 1.0, "dtype": "float32"},
    "tolerance 1000": {"tolerance": 1000.0},
}
MASKED = {"masked, 36 bits": 36, "masked, 24 bits": 24, "masked, 12 bits": 12}


def measure(size: int) -> list[dict[str, Any]]:
    """Return the rows of the table for one d_B."""
    data = load_features("cifar100-features")
    chosen = np.random.RandomState(0).permutation(len(data.train_y))[:ROWS]
    x, y = np.asarray(data.train_x)[chosen].astype(float), np.asarray(data.train_y)[chosen]
    tested = np.asarray(data.test_x)[:TESTED].astype(float)
    options = request(DSALClassifier(expansion_size=size, compensation=None))
    shares = [(x[mine::CLIENTS], y[mine::CLIENTS]) for mine in range(CLIENTS)]
    clients = [DSALClassifier(**options).fit(*share) for share in shares]
    pooled = DSALClassifier(**options).fit(x, y)
    facts, _ = agreed({str(i): facts_of(options, *share) for i, share in enumerate(shares)}, options)
    sums = [sums_of(client, facts["classes"]) for client in clients]

    def plain(**how: Any) -> tuple[DSALClassifier, int]:
        parts = [part_of(client, **how) for client in clients]
        total, *rest = (model_of(part, options) for part in parts)
        for other in rest:
            total.merge(other)
        return total, parts[0].bytes

    def hidden(bits: int) -> tuple[DSALClassifier, int]:
        keys = [new_keys() for _ in clients]
        public = [key for _, key in keys]
        parts = [masked(one, private, public, bits) for one, (private, _) in zip(sums, keys, strict=True)]
        total = model_of(part_of_sums(unmasked(parts, bits), facts, options), options)
        return total, ClientSums(dict(parts[0]), {}).bytes

    ways = {name: lambda how=how: plain(**how) for name, how in PLAIN.items()}
    ways |= {name: lambda bits=bits: hidden(bits) for name, bits in MASKED.items()}
    rows = []
    for name, way in ways.items():
        began = perf_counter()
        try:
            total, sent = way()
        except DSALError as error:
            rows.append({"d_B": size, "sent": name, "refused": str(error)})
            continue
        logits = total.logits(tested)[:, np.argsort(total.classes_)]
        expected = pooled.logits(tested)
        rows.append(
            {
                "d_B": size,
                "sent": name,
                "bytes": sent,
                "largest_difference": float(np.abs(logits - expected).max()),
                "changed": int((logits.argmax(1) != expected.argmax(1)).sum()),
                "seconds": round(perf_counter() - began, 2),
            }
        )
    return rows


def table(rows: list[dict[str, Any]]) -> str:
    """Return the table of the page."""
    lines = ["| d_B | a client sends | MB | logits differ by | predictions changed |", "|---|---|---|---|---|"]
    for row in rows:
        if "refused" in row:
            lines.append(f"| {row['d_B']} | {row['sent']} | | refused: not positive definite | |")
        else:
            size, difference = row["bytes"] / 1e6, row["largest_difference"]
            lines.append(
                f"| {row['d_B']} | {row['sent']} | {size:.1f} | {difference:.0e} | {row['changed']} of {TESTED} |"
            )
    return "\n".join(lines)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", default="1024,2048")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    measured = [row for size in arguments.sizes.split(",") for row in measure(int(size))]
    print(table(measured))
    if arguments.json:
        arguments.json.write_text(json.dumps(measured, indent=1) + "\n", encoding="utf-8")
