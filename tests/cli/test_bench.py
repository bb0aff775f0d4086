"""``dsal bench`` at a size that takes a moment."""

import json
import re
import subprocess
import sys

import pytest

from dsal.analytic.ridge import bytes_needed
from dsal.analytic.speed import Machine, Speed
from dsal.linalg.backend import Lapack

from .conftest import Call

SMALL = ("bench", "--expansion-size", "128", "--rows", "50")


def test_a_table_and_a_verdict(call: Call) -> None:
    done = call(*SMALL)
    assert done.code == 0
    for name in ("dgemm", "dsyrk", "dpotrf", "dtpqrt", "dpotrs", "base phase", "later phase"):
        assert name in done.out
    assert "limited by" in done.out
    assert "GB available; d_B up to" in done.out


def test_json(call: Call) -> None:
    record = json.loads(call(*SMALL, "--json").out)
    assert record["size"] == 128
    assert all(rate > 0 for rate in record["gflops"].values())
    phase = record["phase"]
    assert record["gflops"]["later phase"] == pytest.approx(phase["flops"] / phase["seconds"] / 1e9)
    assert record["environment"]["cpu"]
    assert record["others"] >= 0


def test_a_width_too_small_is_refused(call: Call) -> None:
    assert call("bench", "--expansion-size", "1").code == 2


@pytest.mark.parametrize(
    ("product", "bare", "phase", "verdict"),
    [(80, 60, 55, "arithmetic"), (80, 60, 20, "overhead"), (80, 15, 14, "memory")],
)
def test_the_verdict_follows_the_rates(product: float, bare: float, phase: float, verdict: str) -> None:
    calls = (Speed("dgemm", product * 1e9, 1.0), Speed("dtpqrt", bare * 1e9, 1.0))
    needed = 2 * bytes_needed(4096, 100, Lapack()) + 2**28
    machine = Machine(2048, 1000, calls, Speed("base", 1e9, 1.0), Speed("phase", phase * 1e9, 1.0), 10.0, needed, 0.1)
    assert machine.crowded is None
    assert machine.limit.startswith(verdict)
    assert machine.widest == 4096


def test_other_work_is_noticed(call: Call) -> None:
    """A process that does nothing but count takes a good part of a processor, whatever else runs here."""
    other = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        done = call("bench", "--expansion-size", "256", "--rows", "4000")
    finally:
        other.kill()
    assert re.search(r"crowded: other processes used \d+\.\d of \d+ processors", done.out)
