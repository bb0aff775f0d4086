"""Commands on one model, whole processes: wall time, CPU time and memory, against an earlier commit.

`dsal predict` on one photograph, `evaluate` and `suggest` on fifty, `info`, `rename`, `drop` and `undo`.

    python benchmarks/startup.py --images FOLDER --before EARLIER/src --json benchmarks/results/startup.json

FOLDER has class folders. Each version first learns all but fifty photographs into its own model, in two lessons; the
fifty are for `evaluate` and `suggest`. The versions take turns; medians are reported.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
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
    photographs = read_files(arguments.images).paths
    result: dict[str, dict[str, dict[str, float]]] = {}
    with TemporaryDirectory() as folder:
        models = {side: Path(folder) / f"{side}.dsal" for side in sides}
        asked = photographs[:: max(len(photographs) // 50, 1)][:50]
        taught = [path for path in photographs if path not in set(asked)]
        parts = {"fifty": asked, "first": taught[::2], "second": taught[1::2]}
        fifty, first, second = (linked(Path(folder) / name, some) for name, some in parts.items())
        for side, source in sides.items():
            for lesson in (first, second):
                measure(source, "learn", lesson, "--model", models[side])
        rounds: dict[tuple[str, str], list[tuple[float, float, float]]] = {}
        label = taught[0].parent.name
        for _ in range(arguments.rounds):
            for side, source in sides.items():
                model = models[side]
                for name, command in (
                    ("predict", ("predict", model, asked[0])),
                    ("evaluate", ("evaluate", model, fifty)),
                    ("suggest", ("suggest", model, fifty)),
                    ("info", ("info", model)),
                    ("rename", ("rename", model, label, "another name")),
                    ("undo of a name", ("undo", model)),
                    ("drop", ("drop", model, label)),
                    ("undo of a drop", ("undo", model)),
                    ("undo of a lesson", ("undo", model)),
                    ("redo of a lesson", ("redo", model)),
                ):
                    rounds.setdefault((name, side), []).append(measure(source, *command))
    for (command, side), found in rounds.items():
        seconds, cpu, megabytes = (statistics.median(values) for values in zip(*found, strict=True))
        result.setdefault(command, {})[side] = {
            "seconds": round(seconds, 2),
            "cpu_seconds": round(cpu, 2),
            "megabytes": round(megabytes),
        }
    text = json.dumps({"rounds": arguments.rounds, "load": os.getloadavg()[0], **result}, indent=1)
    print(text)
    if arguments.json:
        arguments.json.write_text(text + "\n")


def linked(folder: Path, photographs: Sequence[Path]) -> Path:
    """Return a folder of class folders with links to photographs."""
    for path in photographs:
        (folder / path.parent.name).mkdir(parents=True, exist_ok=True)
        (folder / path.parent.name / path.name).symlink_to(path.resolve())
    return folder


def measure(source: Path, *command: object) -> tuple[float, float, float]:
    """Return wall and CPU time in seconds and the peak resident memory in MB of ``python -m dsal COMMAND``."""
    began = time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, "-m", "dsal", *map(str, command)],
        env={**os.environ, "PYTHONPATH": str(source)},
        stdout=subprocess.DEVNULL,
    )
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(f"dsal {command[0]} failed")
    return time.perf_counter() - began, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024


if __name__ == "__main__":
    main()
