"""Time and memory by width d_B; every width runs in its own process, whose peak memory is read at the end."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

from benchmarks.speed.contest import Phase, load, ours, phase_of, test_rows
from benchmarks.speed.record import Record, seconds

from dsal.protocol.provenance import peak_memory_bytes

NAME, MINUTES = "width", 4


def run(small: bool) -> Record:
    """Measure d_B = 1,024 to 16,384 with every fifth row, and one width with all rows."""
    widths = [(128, 5), (256, 5), (256, 1)] if small else [(1024 * 2**i, 5) for i in range(5)] + [(4096, 1)]
    record = Record(
        NAME,
        "Time and peak memory of a process over d_B: base phase, two phases of 1,000 rows, evaluation; both streams",
        ("d_B", "base rows", "base s", "phase s", "evaluation s", "peak GB", "two squares GB"),
        _plot,
        notes=[
            "Peak memory is that of the whole process; "
            "Python, torch and the data take nearly all of that in the first row."
        ],
    )
    for size, share in widths:
        command = [sys.executable, "-m", "benchmarks.speed.width", str(size), str(share), str(int(small))]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        measured = json.loads(done.stdout)
        record.raw[f"{size} {share}"] = measured
        times = (measured[key] for key in ("base", "phase", "evaluation"))
        record.rows.append([size, measured["rows"], *times, measured["peak"] / 1e9, 16 * size**2 / 1e9])
    return record


def measure(size: int, share: int, small: bool) -> dict[str, Any]:
    """Measure one width, in this process."""
    data = load(small)
    base = phase_of(data, range(50))
    base = Phase(base.x[::share], base.y[::share], base.classes)
    method = ours(size)
    taken: dict[str, Any] = {"rows": len(base.y), "base": seconds(lambda: method.learn_rows(*base))}
    for classes in (range(50, 52), range(52, 54)):
        phase = phase_of(data, classes)
        taken["phase"] = seconds(lambda phase=phase: (method.learn_rows(*phase), method.scores(phase.x[:1])))
        taken["evaluation"] = seconds(lambda classes=classes: method.predict(test_rows(data, classes.stop)[0]))
    return {**taken, "peak": peak_memory_bytes()}


def _plot(record: Record, axes: Any) -> None:
    rows = sorted(row for row in record.rows if row[1] == record.rows[0][1])
    axes.loglog([row[0] for row in rows], [row[3] for row in rows], "o-", label="seconds, phase of 1,000 rows")
    axes.loglog([row[0] for row in rows], [row[5] for row in rows], "s-", label="peak memory, GB")
    axes.loglog([row[0] for row in rows], [row[6] for row in rows], "--", label="two squares, GB")
    axes.set(xlabel="d_B")
    axes.legend()


if __name__ == "__main__":
    print(json.dumps(measure(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3] == "1")))
