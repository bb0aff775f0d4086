"""`dsal predict` on one photograph and `dsal info`: wall time and memory of whole processes, against an earlier commit.

    python benchmarks/startup.py --images FOLDER --before EARLIER/src --json benchmarks/results/startup.json

FOLDER has class folders; each version first learns it into its own model. The versions take turns; medians are
reported.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

from dsal.data.images.labelled_files import read_files


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=Path, required=True)
    parser.add_argument("--before", type=Path, help="the src folder of an earlier commit")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    sides = {"now": Path(__file__).parents[1] / "src"} | ({"before": arguments.before} if arguments.before else {})
    photograph = read_files(arguments.images).paths[0]
    result: dict[str, dict[str, dict[str, float]]] = {}
    with TemporaryDirectory() as folder:
        models = {side: Path(folder) / f"{side}.dsal" for side in sides}
        for side, source in sides.items():
            measure(source, "learn", arguments.images, "--model", models[side])
        rounds: dict[tuple[str, str], list[tuple[float, float]]] = {}
        for _ in range(arguments.rounds):
            for side, source in sides.items():
                for command in (("predict", models[side], photograph), ("info", models[side])):
                    rounds.setdefault((command[0], side), []).append(measure(source, *command))
    for (command, side), found in rounds.items():
        seconds, megabytes = (statistics.median(values) for values in zip(*found, strict=True))
        result.setdefault(command, {})[side] = {"seconds": round(seconds, 2), "megabytes": round(megabytes)}
    text = json.dumps({"rounds": arguments.rounds, "load": os.getloadavg()[0], **result}, indent=1)
    print(text)
    if arguments.json:
        arguments.json.write_text(text + "\n")


def measure(source: Path, *command: object) -> tuple[float, float]:
    """Return the wall time in seconds and the peak resident memory in MB of ``python -m dsal COMMAND``."""
    began = time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, "-m", "dsal", *map(str, command)],
        env={**os.environ, "PYTHONPATH": str(source)},
        stdout=subprocess.DEVNULL,
    )
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(f"dsal {command[0]} failed")
    return time.perf_counter() - began, usage.ru_maxrss / 1024


if __name__ == "__main__":
    main()
