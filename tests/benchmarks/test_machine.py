"""``benchmarks/machine.py`` at a size that takes a moment."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from dsal.analytic.ridge import bytes_needed
from dsal.linalg.backend import Lapack

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "machine.py"


def run(*arguments: str) -> str:
    done = subprocess.run([sys.executable, SCRIPT, *arguments], capture_output=True, text=True, check=True)
    return done.stdout


def test_a_table_and_a_verdict() -> None:
    shown = run("--expansion-size", "128", "--rows", "50")
    for name in ("dgemm", "dsyrk", "dpotrf", "dtpqrt", "dpotrs", "base phase", "later phase"):
        assert name in shown
    assert "limited by" in shown
    assert "GB available; d_B up to" in shown


def test_json() -> None:
    record = json.loads(run("--expansion-size", "128", "--rows", "50", "--json"))
    assert record["size"] == 128
    assert all(rate > 0 for rate in record["gflops"].values())
    phase = record["phase"]
    assert record["gflops"]["later phase"] == pytest.approx(phase["flops"] / phase["seconds"] / 1e9)
    assert record["environment"]["cpu"]
    assert record["others"] >= 0


@pytest.mark.parametrize(
    ("product", "bare", "phase", "verdict"),
    [(80, 60, 55, "arithmetic"), (80, 60, 20, "overhead"), (80, 15, 14, "memory")],
)
def test_the_verdict_follows_the_rates(product: float, bare: float, phase: float, verdict: str) -> None:
    from benchmarks.machine import Machine, Speed

    calls = (Speed("dgemm", product * 1e9, 1.0), Speed("dtpqrt", bare * 1e9, 1.0))
    needed = 2 * bytes_needed(4096, 100, Lapack()) + 2**28
    machine = Machine(2048, 1000, calls, Speed("base", 1e9, 1.0), Speed("phase", phase * 1e9, 1.0), 10.0, needed, 0.1)
    assert machine.crowded is None
    assert machine.limit.startswith(verdict)
    assert machine.widest == 4096


def test_other_work_is_noticed() -> None:
    """A process that does nothing but count takes a good part of a processor, whatever else runs here."""
    other = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        shown = run("--expansion-size", "256", "--rows", "4000")
    finally:
        other.kill()
    assert re.search(r"crowded: other processes used \d+\.\d of \d+ processors", shown)
