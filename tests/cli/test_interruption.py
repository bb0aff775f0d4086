"""Runs that are killed, and go on to the same results."""

import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.protocol.same import comparable

from dsal.protocol.results import read_results

from .conftest import Call

Start = Callable[..., "subprocess.Popen[str]"]


def stop(process: "subprocess.Popen[str]", phase: int, how: signal.Signals) -> tuple[int, str]:
    """Wait until a phase has been reported, stop the process, and return its exit code and the rest of stderr."""
    assert process.stderr is not None
    for line in process.stderr:
        if line.startswith(f"phase {phase:>2}/"):
            break
    process.send_signal(how)
    _, rest = process.communicate(timeout=60)
    return process.returncode, rest


@pytest.mark.parametrize("phase", [0, 13])
def test_killed_without_warning(phase: int, start: Start, call: Call, sample_file: Path, tmp_path: Path) -> None:
    options = ("run", "--dataset", sample_file, "--expansion-size", "256", "--no-report")
    code, _ = stop(start(*options, "--out", tmp_path / "killed", "--checkpoint-seconds", "0"), phase, signal.SIGKILL)
    assert code == -signal.SIGKILL
    assert not (tmp_path / "killed/results.json").exists()
    resumed = call("run", "--resume", "--out", "killed", "--no-report")  # the rest is in killed/config.toml
    assert resumed.code == 0
    assert "from the stopped run" in resumed.err
    assert call(*options, "--out", "unbroken").code == 0
    killed, unbroken = (read_results(tmp_path / name) for name in ("killed", "unbroken"))
    assert comparable(killed) == comparable(unbroken)


def test_ctrl_c_says_how_to_go_on(start: Start, sample_file: Path, tmp_path: Path) -> None:
    options = ("run", "--dataset", sample_file, "--expansion-size", "512", "--no-report")
    code, rest = stop(start(*options, "--out", tmp_path / "run"), 2, signal.SIGINT)
    assert code == 130
    assert f"dsal run --resume --out {tmp_path / 'run'}" in rest
    assert "Traceback" not in rest
