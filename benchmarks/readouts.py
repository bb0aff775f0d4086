"""DS-AL on one network with four read-outs: all blocks or the last one, with the mirror image or without.

    python -m benchmarks.readouts --data-root DATA --work FOLDER

Methods that train a network read the last 64 numbers of one view. The result, ``readouts``, says how much of the
distance between them and DS-AL in docs/table1.md is the read-out: CIFAR-100, the network of that page, K = 5, seed 0.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from dsal.backbones import load_backbone, save_backbone

RESULTS = Path(__file__).parent / "results"
NETWORK = RESULTS / "cifar100-resnet32-16px.safetensors"
KINDS = ("blocks", "last")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-root", required=True)
    parser.add_argument("--work", type=Path, required=True, help="folder for features and runs")
    asked = parser.parse_args()
    runs: list[dict[str, Any]] = []
    for mirror in (True, False):
        weights, features = (
            asked.work / f"{'mirror' if mirror else 'plain'}-{part}.safetensors" for part in ("w", "f")
        )
        if not features.exists():
            backbone = load_backbone(NETWORK)
            backbone.card = replace(backbone.card, flip=mirror)
            save_backbone(weights, backbone)
            dsal("extract", "--data-root", asked.data_root, "--weights", weights, "--out", features)
        for kind in KINDS:
            out = asked.work / f"{features.stem}-{kind}"
            if not (out / "results.json").exists():
                dsal("run", "--dataset", features, "--features", kind, "--phases", 5, "--out", out, "--no-report")
            found = json.loads((out / "results.json").read_text(encoding="utf-8"))
            totals = {name: found[f"{name}_accuracy"]["mean"] for name in ("average", "last")}
            runs.append({"features": kind, "mirror": mirror, **totals, "config": found["config"]})
            origin = found["provenance"]
    document = {"schema": 1, "network": NETWORK.name, "runs": runs, "provenance": origin}
    (RESULTS / "readouts.json").write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


def dsal(*arguments: object) -> None:
    """Run a command."""
    subprocess.run([sys.executable, "-m", "dsal", *map(str, arguments)], check=True)


if __name__ == "__main__":
    main()
