"""Time of a phase of 1,000 rows (both streams), alone and next to a process that uses one processor.

    python benchmarks/crowded.py --before EARLIER/src --json benchmarks/results/crowded.json

Each version learns in its own process, with its default number of threads. The versions take turns, alone and crowded;
the other process is stopped (SIGSTOP) while a version learns alone. Reports the median and the fastest of the rounds:
on a machine that is also used by others, the fastest is the more meaningful.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

WORK = """
import sys
from time import perf_counter
import numpy as np
from dsal import DSALClassifier
random, labels = np.random.RandomState(1), np.arange(1000) % 100
model = DSALClassifier(expansion_size=int(sys.argv[1]))
def phase():
    x = random.standard_normal((1000, 112))
    began = perf_counter()
    model.partial_fit(x, labels)
    return perf_counter() - began
phase(), phase()
print(flush=True)
for _ in sys.stdin:
    print(phase(), flush=True)
"""


class Version:
    """A process that learns one phase on each request."""

    def __init__(self, source: Path, size: int) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", WORK, str(size)],
            env={**os.environ, "PYTHONPATH": str(source)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._line()

    def phase(self) -> float:
        """Learn one more phase; return the seconds."""
        assert self.process.stdin
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        return float(self._line())

    def _line(self) -> str:
        assert self.process.stdout
        return self.process.stdout.readline()

    def close(self) -> None:
        """End the process."""
        self.process.kill()
        self.process.wait()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--before", type=Path, help="the src folder of an earlier commit")
    parser.add_argument("--sizes", type=int, nargs="+", default=[1024, 2048, 4096])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    sides = {"now": Path(__file__).parents[1] / "src"} | ({"before": arguments.before} if arguments.before else {})
    other = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        found = {}
        for size in arguments.sizes:
            found[str(size)] = contest(sides, size, arguments.rounds, other)
            print(size, found[str(size)], flush=True)
    finally:
        other.kill()
    from dsal.protocol.provenance import environment

    conditions = {**environment(), "cores": os.cpu_count(), "load": os.getloadavg()[0]}
    text = json.dumps({"rounds": arguments.rounds, "d_B": found, "conditions": conditions}, indent=1)
    print(text)
    if arguments.json:
        arguments.json.write_text(text + "\n")


def contest(sides: dict[str, Path], size: int, rounds: int, other: subprocess.Popen[bytes]) -> dict[str, Any]:
    """Return the seconds of each version, alone and crowded, and their ratios."""
    os.kill(other.pid, signal.SIGSTOP)
    versions = {side: Version(source, size) for side, source in sides.items()}
    seconds: dict[tuple[str, str], list[float]] = {}
    for number in range(rounds):
        for crowded in (False, True) if number % 2 else (True, False):
            os.kill(other.pid, signal.SIGCONT if crowded else signal.SIGSTOP)
            for side, version in versions.items():
                seconds.setdefault((side, "crowded" if crowded else "alone"), []).append(version.phase())
    for version in versions.values():
        version.close()
    result: dict[str, Any] = {}
    for side in sides:
        alone, crowded = seconds[side, "alone"], seconds[side, "crowded"]
        result[side] = {
            "alone": [round(value, 4) for value in alone],
            "crowded": [round(value, 4) for value in crowded],
            "ratio of medians": round(statistics.median(crowded) / statistics.median(alone), 2),
            "ratio of fastest": round(min(crowded) / min(alone), 2),
        }
    return result


if __name__ == "__main__":
    main()
