"""How fast this machine learns and what limits it: our update against the bare BLAS and LAPACK calls in it.

python benchmarks/machine.py [--expansion-size 2048] [--rows 1000] [--json]
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import torch

from dsal.analytic.ridge import bytes_needed
from dsal.base.memory import available_bytes
from dsal.linalg.backend import Lapack
from dsal.protocol.provenance import environment, peak_memory_bytes
from dsal.reproduction.forecast import CLASSES, LearningTrial, flops

WIDTHS = (1024, 2048, 4096, 8192, 16384)  # common values of d_B
_ROUNDS = 3
_CROWDED = 0.2  # a machine is crowded if others use at least this many processors


@dataclass(frozen=True)
class Speed:
    """One kind of work: its name, its flops, and the median of its seconds."""

    name: str
    flops: float
    seconds: float

    @property
    def gflops(self) -> float:
        """10^9 flops per second."""
        return self.flops / self.seconds / 1e9


@dataclass(frozen=True)
class Machine:
    """The result of :func:`measure`.

    Attributes:
        size: d_B of the measurement.
        rows: number of rows per phase.
        calls: the bare BLAS and LAPACK calls.
        base: the first phase, both streams: symmetric updates and Cholesky.
        phase: a later phase, both streams: a triangular update.
        copy_gigabytes: gigabytes read and written per second by copying.
        available: bytes of memory that can be allocated; None if unknown.
        others: processors used by other processes during the measurement; None if unknown.
    """

    size: int
    rows: int
    calls: tuple[Speed, ...]
    base: Speed
    phase: Speed
    copy_gigabytes: float
    available: int | None
    others: float | None

    @property
    def crowded(self) -> str | None:
        """A warning if other processes used processors during the measurement, else None."""
        if self.others is None or self.others < _CROWDED:
            return None
        return (
            f"crowded: other processes used {self.others:.1f} of {os.cpu_count()} processors during the measurement. "
            "The numbers show what was left; learning slows down in proportion"
        )

    @property
    def widest(self) -> int | None:
        """The largest common d_B whose two streams fit into memory."""
        if self.available is None:
            return None
        fit = [d for d in WIDTHS if 2 * bytes_needed(d, CLASSES, Lapack()) + 2**28 <= self.available]
        return max(fit, default=None)

    @property
    def limit(self) -> str:
        """What limits learning, in words."""
        bare = {call.name: call.gflops for call in self.calls}
        fraction = self.phase.gflops / bare["dtpqrt"]
        if fraction < 0.7:
            return (
                f"overhead: a phase runs at {100 * fraction:.0f}% of the bare triangular update. Phases with more "
                "rows or a wider expansion would use the processor better"
            )
        if bare["dtpqrt"] < 0.35 * bare["dgemm"]:
            return (
                "memory: the triangular update reaches "
                f"{100 * bare['dtpqrt'] / bare['dgemm']:.0f}% of a matrix product, so it waits for memory "
                f"({self.copy_gigabytes:.0f} GB/s). More threads will not help much"
            )
        return (
            f"arithmetic: a phase runs at {100 * fraction:.0f}% of the bare triangular update. Only a faster BLAS, "
            "more cores or a GPU would help"
        )


def measure(size: int = 2048, rows: int = 1000) -> Machine:
    """Measure on the CPU, in about ten seconds on two cores at d_B = 2048; the different calls take turns."""
    from scipy.linalg import blas, lapack

    random = np.random.RandomState(0)
    square, x = np.zeros((size, size), order="F"), np.asfortranarray(random.standard_normal((rows, size)))
    a, b = (np.asfortranarray(random.standard_normal((size, size))) for _ in range(2))
    y, spare = np.ones((size, CLASSES), order="F"), np.empty_like(square)

    def on_factor(call: Callable[[], Any]) -> Callable[[], Any]:
        def work() -> None:
            np.fill_diagonal(square, 1e4)
            call()

        return work

    bare: dict[str, tuple[float, Callable[[], Any]]] = {
        "dgemm": (2.0 * size**3, lambda: blas.dgemm(1.0, a, b)),
        "dsyrk": (rows * size**2, lambda: blas.dsyrk(1.0, x, beta=1.0, c=square, trans=1, overwrite_c=1)),
        "dpotrf": (size**3 / 3, on_factor(lambda: lapack.dpotrf(square, clean=0, overwrite_a=1))),
        "dtpqrt": (
            2.0 * rows * size**2,
            on_factor(lambda: lapack.dtpqrt(0, min(64, size), square, x.copy(order="F"), overwrite_a=1, overwrite_b=1)),
        ),
        "dpotrs": (2.0 * size**2 * CLASSES, on_factor(lambda: lapack.dpotrs(square, y))),
    }
    trial, (base, phase) = LearningTrial(size, rows), flops(size, rows)
    work = {**{name: call for name, (_, call) in bare.items()}, "base": trial.first, "phase": trial.later}
    work["copy"] = lambda: np.copyto(spare, a)
    seconds: dict[str, list[float]] = {name: [] for name in work}
    before = _usage()
    for _ in range(_ROUNDS):
        for name, call in work.items():
            began = perf_counter()
            call()
            seconds[name].append(perf_counter() - began)
    after = _usage()
    median = {name: statistics.median(times) for name, times in seconds.items()}
    return Machine(
        size=size,
        rows=rows,
        calls=tuple(Speed(name, count, median[name]) for name, (count, _) in bare.items()),
        base=Speed("base phase", base, median["base"]),
        phase=Speed("later phase", phase, median["phase"]),
        copy_gigabytes=2 * a.nbytes / median["copy"] / 1e9,
        available=available_bytes(torch.device("cpu")),
        others=_others(before, after),
    )


def _usage() -> tuple[float, float, float] | None:
    """Return the time, and the processor seconds used so far by all processes and by this one; None if unknown."""
    try:
        fields = Path("/proc/stat").read_text().splitlines()[0].split()
        user, nice, system, _, _, *rest = (int(field) for field in fields[1:9])  # skipped: idle and iowait
        own = os.times()
        return perf_counter(), (user + nice + system + sum(rest)) / os.sysconf("SC_CLK_TCK"), own.user + own.system
    except (OSError, ValueError, AttributeError, IndexError):  # not Linux
        return None


def _others(before: tuple[float, float, float] | None, after: tuple[float, float, float] | None) -> float | None:
    """Return the processors used by other processes between two readings of :func:`_usage`."""
    if before is None or after is None:
        return None
    elapsed, total, own = (later - earlier for earlier, later in zip(before, after, strict=True))
    return max(total - own, 0.0) / elapsed


def show(machine: Machine) -> None:
    """Print a table of the rates, what limits learning, and the widest expansion that fits."""
    conditions = environment()
    print(f"d_B = {machine.size}, {machine.rows} rows; {conditions['cpu']}, {conditions['threads']} threads\n")
    print(f"{'':<42}{'GFLOP/s':>9}{'seconds':>9}")
    for part in (*machine.calls, machine.base, machine.phase):
        name = f"bare {part.name}" if part in machine.calls else f"dsal, {part.name}, both streams"
        print(f"{name:<42}{part.gflops:>9.1f}{part.seconds:>9.3f}")
    print(f"\nlimited by {machine.limit}.")
    if machine.crowded:
        print(f"{machine.crowded}.")
    if machine.available is not None:
        fits = "no common d_B fits" if machine.widest is None else f"d_B up to {machine.widest} fits"
        print(f"memory: {machine.available / 1e9:.1f} GB available; {fits}.")


def record(machine: Machine) -> dict[str, Any]:
    """Return everything measured, and the conditions, as JSON values."""
    return {
        **asdict(machine),
        "gflops": {part.name: part.gflops for part in (*machine.calls, machine.base, machine.phase)},
        "limit": machine.limit,
        "crowded": machine.crowded,
        "widest": machine.widest,
        "peak_memory_bytes": peak_memory_bytes(),
        "environment": environment(),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--expansion-size", type=int, default=2048, help="width d_B to measure with")
    parser.add_argument("--rows", type=int, default=1000, help="rows of a phase")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    arguments = parser.parse_args()
    machine = measure(arguments.expansion_size, arguments.rows)
    if arguments.json:
        print(json.dumps(record(machine), indent=1))
    else:
        show(machine)


if __name__ == "__main__":
    main()
