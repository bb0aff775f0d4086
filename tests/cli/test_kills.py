"""Commands killed at any moment, again and again: the same results in the end, and no file lost, torn or left over.

All 300, and 200 of the server:

    python -m pytest -m slow -k killed tests/cli/test_kills.py tests/serve/test_durability.py
"""

from __future__ import annotations

import os
import pickle
import random
import shutil
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.protocol.same import comparable

from dsal.backbones import load_backbone
from dsal.cli.main import main
from dsal.data import DataSet
from dsal.image_model import ImageModel
from dsal.protocol.results import read_results

Command = tuple[str | Path, ...]
KILLS = {"run": 80, "compare": 20, "pretrain": 40, "learn": 80, "undo": 80}


def forked(work: Callable[[], object]) -> int:
    """Do the work in a child of this process, which has everything imported; its process number."""
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        devnull = os.open(os.devnull, os.O_WRONLY)
        os.dup2(devnull, 1)
        os.dup2(devnull, 2)
        work()
        code = 0
    except SystemExit as left:
        code = left.code if isinstance(left.code, int) else 0
    finally:
        os._exit(code)


def dsal(*arguments: str | Path) -> Callable[[], None]:
    """``dsal ARGUMENTS``."""

    def run() -> None:
        sys.argv = ["dsal", *map(str, arguments)]
        main()

    return run


def here(work: Callable[[], object]) -> None:
    """Let the work end in this process: what it imports is there for the children."""
    with pytest.raises(SystemExit) as left:
        work()
    assert not left.value.code


def timed(work: Callable[[], object]) -> float:
    """Let the work end, and return how long that took."""
    began = time.perf_counter()
    _, status = os.waitpid(forked(work), 0)
    assert status == 0
    return time.perf_counter() - began


def killed(work: Callable[[], object], seconds: float) -> bool:
    """Kill the work after so many seconds; return whether it had not ended by then."""
    child = forked(work)
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            assert status == 0, f"it failed with {os.waitstatus_to_exitcode(status)}"
            return False
        time.sleep(0.001)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return True


def whole(folder: Path) -> None:
    """No temporary file stays behind once a command has ended."""
    assert not [path for path in folder.rglob("*") if "tmp" in path.name.lower()]


def killed_and_resumed(first: Command, again: Command, out: Path, kills: int, same: Callable[[Path], None]) -> None:
    """Kill a command that resumes until it has been killed so often; each time it ends, its results are compared."""
    moments, count, resumed = random.Random(0), 0, False
    out.mkdir()
    took = timed(dsal(*first))
    same(out)
    shutil.rmtree(out)
    out.mkdir()
    while count < kills:
        work = dsal(*(again if resumed and any(out.iterdir()) else first))
        if killed(work, moments.uniform(0.02, 0.6) * took):
            count, resumed = count + 1, True
            continue
        same(out)
        whole(out)
        shutil.rmtree(out)
        out.mkdir()
        resumed = False
    if resumed and any(out.iterdir()):
        timed(dsal(*again))
        same(out)
        whole(out)


def run_again_and_again(sample_file: Path, folder: Path, kills: int) -> None:
    options = ("--dataset", sample_file, "--expansion-size", "256", "--phases", "5", "--no-report")
    out, often = folder / "out", ("--checkpoint-seconds", "0")
    here(dsal("run", *options, "--out", folder / "unbroken"))
    wanted = comparable(read_results(folder / "unbroken"))

    def same(path: Path) -> None:
        assert comparable(read_results(path)) == wanted

    first = ("run", *options, *often, "--out", out)
    killed_and_resumed(first, ("run", "--resume", *often, "--no-report", "--out", out), out, kills, same)


def compare_again_and_again(sample_file: Path, folder: Path, kills: int) -> None:
    options = ("--dataset", sample_file, "--expansion-size", "128", "--phases", "5", "--no-report", "--no-tune")
    out, methods = folder / "out", ("ncm", "ds-al")
    here(dsal("compare", *methods, *options, "--out", folder / "unbroken"))
    wanted = {name: comparable(read_results(folder / "unbroken/k5" / name)) for name in methods}

    def same(path: Path) -> None:
        assert {name: comparable(read_results(path / "k5" / name)) for name in methods} == wanted

    first = ("compare", *methods, *options, "--out", out)
    killed_and_resumed(first, first, out, kills, same)


def change_again_and_again(before: Path, command: Command, folder: Path, kills: int) -> None:
    """Kill a command that changes a model: the file is the old one or the new one, to the last byte."""
    moments, count, model = random.Random(0), 0, folder / "m.dsal"
    old = before.read_bytes()
    shutil.copy(before, model)
    here(dsal(*command))
    shutil.copy(before, model)
    took = timed(dsal(*command))
    new = model.read_bytes()
    assert new != old
    while count < kills:
        shutil.copy(before, model)
        count += killed(dsal(*command), moments.uniform(0.02, 1.05) * took)
        assert model.read_bytes() in (old, new)
        shutil.copy(before, model)  # and whoever comes next neither waits nor fails
        if count % 10 == 0:
            timed(dsal(*command))
            assert model.read_bytes() == new
    shutil.copy(before, model)
    timed(dsal(*command))
    whole(folder)


@pytest.fixture(scope="session")
def taught(album: Path, weights: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Models before a lesson, and after it."""
    folder = tmp_path_factory.mktemp("taught")
    model = ImageModel(load_backbone(weights), expansion_size=256)
    model.learn(album / "first")
    model.save(folder / "before.dsal")
    model.learn(album / "second")
    model.save(folder / "after.dsal")
    return {name: folder / f"{name}.dsal" for name in ("before", "after")}


def pretrain_again_and_again(characters: DataSet, folder: Path, kills: int) -> None:
    write_cifar10(characters, folder / "data")
    source = ("--dataset", "cifar10", "--data-root", folder / "data")
    options = ("pretrain", *source, "--recipe", "paper", "--epochs", "3")
    (folder / "unbroken").mkdir()
    here(dsal(*options, "--out", folder / "unbroken/w.safetensors"))
    wanted = load_backbone(folder / "unbroken/w.safetensors").state_dict()

    def same(path: Path) -> None:
        found = load_backbone(path / "w.safetensors").state_dict()
        assert all(torch.equal(found[name], value) for name, value in wanted.items())

    out = folder / "out"
    first = (*options, "--resume", "--out", out / "w.safetensors")
    killed_and_resumed(first, first, out, kills, same)


def write_cifar10(characters: DataSet, root: Path) -> None:
    """Ten characters in the files of CIFAR-10, as real as can be and as few as will do."""
    folder = root / "cifar-10-batches-py"
    folder.mkdir(parents=True)
    rows = torch.nonzero(characters.train.labels < 10).flatten().repeat(5)  # two batches of the recipe
    images = torch.nn.functional.pad(characters.train.images[rows], (2, 2, 2, 2)).expand(-1, 3, -1, -1)
    labels = characters.train.labels[rows].tolist()
    for number, member in enumerate(["test_batch", *(f"data_batch_{n}" for n in range(1, 6))]):
        some = slice(number, None, 6)
        content = {"data": images[some].reshape(-1, 3072).numpy(), "labels": labels[some]}
        (folder / member).write_bytes(pickle.dumps(content, protocol=4))
    names = {"label_names": [f"character {number}" for number in range(10)]}
    (folder / "batches.meta").write_bytes(pickle.dumps(names, protocol=4))


def again_and_again(name: str, request: pytest.FixtureRequest, folder: Path, kills: int) -> None:
    """Kill the command ``name`` so often."""

    def fixture(wanted: str) -> Any:
        return request.getfixturevalue(wanted)

    if name == "run":
        run_again_and_again(fixture("sample_file"), folder, kills)
    elif name == "compare":
        compare_again_and_again(fixture("sample_file"), folder, kills)
    elif name == "pretrain":
        pretrain_again_and_again(fixture("characters"), folder, kills)
    elif name == "learn":
        lesson = ("learn", fixture("album") / "second", "--model", folder / "m.dsal")
        change_again_and_again(fixture("taught")["before"], lesson, folder, kills)
    else:
        change_again_and_again(fixture("taught")["after"], ("undo", folder / "m.dsal"), folder, kills)


@pytest.mark.parametrize("name", ["run", "learn", "undo"])
def test_killed_a_few_times(name: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    again_and_again(name, request, tmp_path, 2)


@pytest.mark.slow
@pytest.mark.parametrize("name", KILLS)
def test_killed_300_times(name: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    again_and_again(name, request, tmp_path, KILLS[name])
