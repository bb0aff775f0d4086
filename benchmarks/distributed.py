"""Time of a phase on one and on two processes, against the model of ``benchmarks/phase_cost.py``.

    python benchmarks/distributed.py                 # d_B = 4096, the 25,000 rows of CIFAR-100's base phase
    python benchmarks/distributed.py --size 512 --rows 2000 --repeats 1

One process with one BLAS thread, one with two, and two with one thread each learn the base phase and then a phase of
ten classes, on the features that ship with the package. Each rate is measured separately, with 2048 rows, one
factorisation per stream and messages of 64 MB; from the rates the model predicts the time of the phases. Needs two
cores and nothing else running.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import torch
from phase_cost import PhaseCost, Rates
from torch import Tensor

from dsal.analytic.learner import Learner
from dsal.analytic.parallel import CHUNK_BYTES
from dsal.analytic.rows import PhaseRows, from_arrays
from dsal.data import FeatureSet, load_features
from dsal.distributed import ALONE, Team, join_processes
from dsal.linalg.backend import Lapack

SETTINGS = ((1, 1), (1, 2), (2, 1))  # processes, threads per process
TRIAL_ROWS, TRIALS = 2048, 4


class ClockedLapack(Lapack):
    """Measures the time of what rank 0 does alone: factorisations and solves."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def factor_(self, gram: Tensor) -> None:
        with self._clock():
            super().factor_(gram)

    def unfactor_(self, factor: Tensor) -> None:
        with self._clock():
            super().unfactor_(factor)

    def solve(self, factor: Tensor, b: Tensor) -> Tensor:
        with self._clock():
            return super().solve(factor, b)

    @contextmanager
    def _clock(self) -> Iterator[None]:
        began = perf_counter()
        yield
        self.seconds += perf_counter() - began


def make_learner(size: int, team: Team) -> tuple[Learner, ClockedLapack]:
    """Return a new learner with the paper's values."""
    backend = ClockedLapack()
    return Learner(size=size, backend=backend, team=team), backend


def learn(learner: Learner, data: FeatureSet, rows: np.ndarray, classes: range, team: Team) -> float:
    """Learn a phase; return the seconds until all ranks have the weights."""
    read = from_arrays(data.train_x[rows], data.train_y[rows], torch.device("cpu"))
    phase = PhaseRows(read, len(rows), torch.arange(classes.start, classes.stop), classes.stop)
    team.wait()
    began = perf_counter()
    learner.learn(phase)
    team.wait()
    return perf_counter() - began


def measure_rates(data: FeatureSet, size: int, base: np.ndarray, team: Team) -> Rates:
    """Measure each rate separately, as the fastest of some trials; all ranks compute at once, as in a real phase."""
    rows = base[np.linspace(0, len(base) - 1, TRIAL_ROWS).astype(int)]
    trial = PhaseCost(TRIAL_ROWS, size, 50, 50, data.train_x.shape[1], first=True)
    summing, factoring = [], []
    for _ in range(TRIALS):
        learner, backend = make_learner(size, ALONE)
        total = learn(learner, data, rows, range(50), team)
        summing.append(total - backend.seconds)
        factoring.append(backend.seconds)
    chunk, moving = torch.zeros(CHUNK_BYTES // 8, dtype=torch.float64), []
    for move in (team.reduce_, team.broadcast_):
        taken = []
        for _ in range(TRIALS):
            team.wait()
            began = perf_counter()
            move(chunk)
            team.wait()
            taken.append(perf_counter() - began)
        moving.append(chunk.nbytes / min(taken))
    accumulate = TRIAL_ROWS * trial.flops_per_row / min(summing)
    return Rates(accumulate, trial.flops_at_the_end / min(factoring), *moving)


def job(size: int, rows: int, repeats: int) -> None:
    """Run the measurements on every rank; rank 0 prints the results as JSON."""
    with join_processes() as team:
        data = load_features("cifar100-features")
        base = np.flatnonzero(data.train_y < 50)[:: max(25_000 // rows, 1)][:rows]
        later = np.flatnonzero((data.train_y >= 50) & (data.train_y < 60))[: max(rows // 5, 1)]
        width = data.train_x.shape[1]
        phases = (PhaseCost(len(base), size, 50, 50, width, first=True), PhaseCost(len(later), size, 60, 10, width))
        rates = measure_rates(data, size, base, team)
        seconds: list[list[tuple[float, float]]] = [[], []]
        for _ in range(repeats):
            learner, backend = make_learner(size, team)
            for number, (some, classes) in enumerate(((base, range(50)), (later, range(50, 60)))):
                before = backend.seconds
                total = learn(learner, data, some, classes, team)
                seconds[number].append((total, total - (backend.seconds - before)))
        if team.leads:
            found = {
                name: {
                    **asdict(phase),
                    "seconds": min(total for total, _ in taken),
                    "accumulate_seconds": min(summed for _, summed in taken),
                    "predicted_seconds": phase.seconds(team.size, rates),
                }
                for name, phase, taken in zip(("base", "next"), phases, seconds, strict=True)
            }
            print(json.dumps({**found, "rates": asdict(rates)}))


def run(processes: int, threads: int, options: argparse.Namespace) -> dict[str, Any]:
    """Start the ranks and return the results of rank 0."""
    with socket.create_server(("localhost", 0)) as free:
        port = free.getsockname()[1]
    given = ("--size", options.size, "--rows", options.rows, "--repeats", options.repeats)
    common = {"WORLD_SIZE": processes, "MASTER_ADDR": "localhost", "MASTER_PORT": port}
    common |= {"OMP_NUM_THREADS": threads, "OPENBLAS_NUM_THREADS": threads}
    ranks = [
        subprocess.Popen(
            [sys.executable, __file__, "--job", *map(str, given)],
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, **{key: str(value) for key, value in {**common, "RANK": r, "LOCAL_RANK": r}.items()}},
        )
        for r in range(processes)
    ]
    outputs = [process.communicate()[0] for process in ranks]
    if any(process.returncode for process in ranks):
        raise SystemExit("a rank has failed")
    answer: dict[str, Any] = json.loads(outputs[0])
    return {"processes": processes, "threads": threads, **answer}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=int, default=4096, help="d_B")
    parser.add_argument("--rows", type=int, default=25_000, help="rows of the base phase, at most 25,000")
    parser.add_argument("--repeats", type=int, default=3, help="repetitions, of which the fastest counts")
    parser.add_argument("--out", type=Path, help="JSON file to write")
    parser.add_argument("--job", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.job:
        job(options.size, options.rows, options.repeats)
        return
    found = [run(*setting, options) for setting in SETTINGS]
    print("processes x threads   phase   accumulate s   whole s   predicted s")
    for one in found:
        for name in ("base", "next"):
            part = one[name]
            times = (part["accumulate_seconds"], part["seconds"], part["predicted_seconds"])
            print(
                f"{one['processes']} x {one['threads']}                 {name}" + "".join(f"{t:12.3f}" for t in times)
            )
    single, threaded, double = (one["base"]["accumulate_seconds"] for one in found)
    print(f"base phase accumulated by 2 processes: {single / double:.2f}x as fast as by 1 with 1 thread,")
    print(f"{threaded / double:.2f}x as fast as by 1 with 2 threads")
    if options.out is not None:
        machine = {"platform": platform.platform(), "torch": torch.__version__, "numpy": np.__version__}
        options.out.write_text(json.dumps({"machine": machine, "runs": found}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
