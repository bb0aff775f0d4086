"""The command line, inside this process and as a process of its own."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from dsal.cli.main import main

Call = Callable[..., "Outcome"]


@dataclass(frozen=True)
class Outcome:
    code: int
    out: str
    err: str


@pytest.fixture
def call(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Call:
    """Run ``dsal ARGUMENTS`` in ``tmp_path`` and return exit code, stdout and stderr."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str | Path) -> Outcome:
        monkeypatch.setattr(sys, "argv", ["dsal", *map(str, arguments)])
        with pytest.raises(SystemExit) as exit_:
            main()
        captured = capsys.readouterr()
        code = exit_.value.code
        return Outcome(code if isinstance(code, int) else 0, captured.out, captured.err)

    return run


@pytest.fixture
def start() -> Callable[..., "subprocess.Popen[str]"]:
    """Start ``python -m dsal ARGUMENTS`` as a process."""

    def run(*arguments: str | Path) -> "subprocess.Popen[str]":
        return subprocess.Popen(
            [sys.executable, "-m", "dsal", *map(str, arguments)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
            # Tests run as a background job inherit an ignored Ctrl-C; a user's terminal does not hand one down.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )

    return run


@pytest.fixture
def small(sample_file: Path) -> tuple[str, ...]:
    """Options of a run that takes a moment."""
    return ("run", "--dataset", str(sample_file), "--phases", "5", "--expansion-size", "32", "--no-report")
