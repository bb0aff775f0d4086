"""Several processes that work together, started as ``torchrun`` does it, by their environment."""

import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from numpy.typing import NDArray

from dsal.files.tensors import load_tensors

JOBS = Path(__file__).parent / "jobs.py"
Answers = dict[str, NDArray[Any]]
Ranks = list["subprocess.Popen[str]"]
Start = Callable[..., Ranks]


@pytest.fixture(scope="session")
def start() -> Iterator[Start]:
    """Start ``python ARGUMENTS`` as so many ranks; rank 0 comes first."""
    started: Ranks = []

    def run(size: int, *arguments: str | Path) -> Ranks:
        with socket.create_server(("localhost", 0)) as free:
            port = free.getsockname()[1]
        common = {"WORLD_SIZE": str(size), "MASTER_ADDR": "localhost", "MASTER_PORT": str(port)}
        ranks = [
            subprocess.Popen(
                [sys.executable, *map(str, arguments)],
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                env={**os.environ, **common, "RANK": str(rank), "LOCAL_RANK": str(rank), "OMP_NUM_THREADS": "1"},
            )
            for rank in range(size)
        ]
        started.extend(ranks)
        return ranks

    yield run
    for process in started:
        process.kill()
        process.communicate()


@pytest.fixture(scope="session")
def finish(start: Start) -> Callable[..., None]:
    """Have a job of ``jobs.py`` done by so many ranks."""

    def run(size: int, job: str, *arguments: str | Path) -> None:
        for process in start(size, JOBS, job, *arguments):
            _, err = process.communicate(timeout=300)
            assert process.returncode == 0, err

    return run


@pytest.fixture(scope="session", params=[2, pytest.param(4, marks=pytest.mark.slow)])
def together(
    request: pytest.FixtureRequest,
    finish: Callable[..., None],
    weights: Path,
    album: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> list[Answers]:
    """The answers of every rank to ``everything`` in ``jobs.py``."""
    out = tmp_path_factory.mktemp("together")
    finish(request.param, "everything", out, weights, album / "first")
    return [load_tensors(out / f"{request.param}-{rank}.safetensors")[0] for rank in range(request.param)]
