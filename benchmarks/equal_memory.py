"""DS-AL beside methods with one stream: at equal width, and at the width at which they store as many bytes.

    python -m benchmarks.equal_memory --out FOLDER    # run what is missing, then write results/equal-memory.json

Every run is `dsal run` on the embedded CIFAR-100 features with the paper's gamma and C. DS-AL keeps two triangles, the
others one, so at equal bytes theirs is wider. A run that exists in FOLDER is not repeated, and results of other widths
stay.
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results" / "equal-memory.json"
FEATURES, CLASSES = 1152, 100


def width_of(stored: int) -> int:
    """Return the largest width at which one stream stores at most so many bytes: projection, triangle and X^T Y.

    8 (d (d + 1) / 2 + d (FEATURES + CLASSES)) = stored, solved for d.

    >>> width_of(8 * (1024 * 1025 // 2 + 1024 * 1252))
    1024
    """
    per_row = FEATURES + CLASSES + 0.5
    return int((-per_row + math.sqrt(per_row**2 + stored / 4)) + 1e-9)


def run(folder: Path, method: str, width: int, phases: int, seeds: str) -> dict[str, Any]:
    """Return the numbers of a run, made now unless the folder has it."""
    out = folder / f"{method}-{width}-k{phases}"
    if not (out / "results.json").exists():
        options = ["--method", method, "--expansion-size", str(width), "--phases", str(phases), "--seeds", seeds]
        resume = ["--resume"] if out.exists() else []
        subprocess.run([sys.executable, "-m", "dsal", "run", *options, *resume, "--out", str(out)], check=True)
    found = json.loads((out / "results.json").read_text(encoding="utf-8"))
    totals = ("average_accuracy", "last_accuracy", "base_accuracy", "new_accuracy")
    return {
        "method": method,
        "width": width,
        "phases": phases,
        "seeds": found["seeds"],
        "stored_bytes": found["stored_bytes"],
        **{name: found[name] for name in totals},
        "config": found["config"],
        "provenance": {key: value for key, value in found["provenance"].items() if key != "backbone"},
    }


def table(runs: list[dict[str, Any]]) -> str:
    """Return the runs as a Markdown table, DS-AL of each width above those it is compared with."""
    lines = ["| method | d_B | stored MB | average | last | base | new |", "|---|---|---|---|---|---|---|"]
    names = ("average_accuracy", "last_accuracy", "base_accuracy", "new_accuracy")
    for one in runs:
        cells = [f"{one[name]['mean']:.2f} ± {one[name]['std']:.2f}" for name in names]
        lines.append(f"| {one['method']} | {one['width']} | {one['stored_bytes'] / 1e6:.1f} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="folder of the runs")
    parser.add_argument("--widths", default="1024,2048,4096")
    parser.add_argument("--phases", type=int, default=25)
    parser.add_argument("--seeds", default="0,1,2")
    parser.add_argument("--methods", default="acil")
    asked = parser.parse_args()
    done = json.loads(RESULTS.read_text(encoding="utf-8"))["runs"] if RESULTS.exists() else []
    groups = {one["group"]: [other for other in done if other["group"] == one["group"]] for one in done}
    for width in map(int, asked.widths.split(",")):
        ours = run(asked.out, "ds-al", width, asked.phases, asked.seeds)
        wider = width_of(ours["stored_bytes"])
        others = [(method, size) for method in asked.methods.split(",") for size in (width, wider)]
        new = [ours, *(run(asked.out, method, size, asked.phases, asked.seeds) for method, size in others)]
        groups[width] = [{"group": width, **one} for one in new]
        runs = [one for _, group in sorted(groups.items()) for one in group]
        RESULTS.write_text(json.dumps({"schema": 1, "runs": runs}, indent=1) + "\n", encoding="utf-8")
    print(table(runs))


if __name__ == "__main__":
    main()
