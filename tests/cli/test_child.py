"""A command that is run by another one ends with it."""

import subprocess
import sys
import time
from pathlib import Path

import pytest

from dsal.cli.processes import run_child

pytestmark = pytest.mark.skipif(not Path("/proc/self").exists(), reason="processes are looked at in /proc")


def alive(process: int) -> bool:
    status = Path(f"/proc/{process}/stat")
    return status.exists() and status.read_text().rpartition(")")[2].split()[0] != "Z"


def until(condition, seconds: float = 60) -> bool:  # type: ignore[no-untyped-def]
    end = time.monotonic() + seconds
    while not condition() and time.monotonic() < end:
        time.sleep(0.05)
    return bool(condition())


def test_a_killed_parent_takes_its_child_along(tmp_path: Path) -> None:
    arguments = ["run", "--no-report", "--out", str(tmp_path / "out")]
    code = f"from dsal.cli.processes import run_child; run_child({arguments!r})"
    parent = subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.DEVNULL)
    children = Path(f"/proc/{parent.pid}/task/{parent.pid}/children")
    assert until(lambda: children.read_text().split())
    child = int(children.read_text().split()[0])
    time.sleep(0.5)
    assert alive(child)
    parent.kill()
    parent.wait()
    assert until(lambda: not alive(child))
    assert not (tmp_path / "out" / "results.json").exists()


def test_its_exit_code_is_given_back() -> None:
    assert run_child(["--version"]) == 0
    assert run_child(["run", "--phases", "none"]) == 2
