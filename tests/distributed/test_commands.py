"""Commands under ``torchrun``: one table, one folder; a rank that dies is named, and the run goes on without it."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.protocol.same import comparable

from dsal.cli.main import main
from dsal.protocol.results import read_results

from .conftest import Start


def call(monkeypatch: pytest.MonkeyPatch, *arguments: str | Path) -> None:
    monkeypatch.setattr(sys, "argv", ["dsal", *map(str, arguments)])
    with pytest.raises(SystemExit) as exit_:
        main()
    assert not exit_.value.code


def test_a_run(sample_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    options = ("run", "--dataset", sample_file, "--phases", "5", "--expansion-size", "128", "--no-report", "--out")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "-m", "dsal"]
    done = subprocess.run(
        [*torchrun, *map(str, options), tmp_path / "two"], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("ds-al") == done.stderr.count("phase  3/5") == done.stderr.count("results in") == 1
    call(monkeypatch, *options, tmp_path / "one")
    one, two = (comparable(read_results(tmp_path / name)) for name in ("one", "two"))
    assert (one["provenance"].pop("processes"), two["provenance"].pop("processes")) == (1, 2)
    assert one == two


@pytest.mark.parametrize("lost", [2, pytest.param(0, marks=pytest.mark.slow)])
def test_a_rank_dies(
    lost: int, start: Start, sample_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = ("run", "--dataset", sample_file, "--expansion-size", "512", "--no-report", "--out")
    ranks = start(3, "-m", "dsal", *options, tmp_path / "killed", "--checkpoint-seconds", "0")
    assert ranks[0].stderr is not None
    for line in ranks[0].stderr:
        if line.startswith("phase  2/"):
            break
    killed = time.monotonic()
    ranks[lost].send_signal(signal.SIGKILL)
    for rank, process in enumerate(ranks):
        _, rest = process.communicate(timeout=60)
        if rank != lost:
            assert process.returncode == 1, rest
            assert f"error: rank {lost} (process {ranks[lost].pid} on " in rest
            assert "Traceback" not in rest
    assert time.monotonic() - killed < 60
    assert not (tmp_path / "killed/results.json").exists()
    call(monkeypatch, "run", "--resume", "--out", tmp_path / "killed", "--no-report")  # alone
    call(monkeypatch, *options, tmp_path / "unbroken")
    resumed, unbroken = (comparable(read_results(tmp_path / name)) for name in ("killed", "unbroken"))
    assert (resumed["provenance"].pop("processes"), unbroken["provenance"].pop("processes")) == (3, 1)
    assert resumed == unbroken


@pytest.mark.slow
def test_what_fails_alike_everywhere_is_said_once(start: Start, tmp_path: Path) -> None:
    ranks = start(2, "-m", "dsal", "run", "--dataset", "cifar1OO", "--out", tmp_path)
    errors = [process.communicate(timeout=120)[1] for process in ranks]
    assert [process.returncode for process in ranks] == [2, 1]
    assert "did you mean" in errors[0]
    assert errors[1] == ""


def test_other_commands_say_that_they_run_alone(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setattr(sys, "argv", ["dsal", "compare", "ds-al"])
    with pytest.raises(SystemExit) as exit_:
        main()
    assert exit_.value.code == 2
    assert "dsal compare runs in one process" in capsys.readouterr().err
