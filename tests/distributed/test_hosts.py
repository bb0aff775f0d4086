"""Two hosts, each in a network namespace with an address and a name of its own, joined by a cable that can be pulled.

Skipped where the tests do not run as root, or ``ip`` and ``unshare`` are missing. The scripts are those of
docs/distributed.md, with one process a host, small data, and stand-ins for SLURM's ``srun`` and ``scontrol``.
"""

import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.protocol.same import comparable

from dsal.protocol.results import read_results

ROOT = hasattr(os, "geteuid") and os.geteuid() == 0
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not (ROOT and shutil.which("ip") and shutil.which("unshare")), reason="needs root and ip netns"),
]
GUIDE = Path(__file__).parents[2] / "docs" / "distributed.md"
ADDRESSES = ("10.213.77.1", "10.213.77.2")


@dataclass(frozen=True)
class Hosts:
    """Two hosts by name."""

    names: tuple[str, str]

    def command(self, host: int, *arguments: str | Path) -> list[str]:
        """What runs ``arguments`` on a host, under its name."""
        name = self.names[host]
        inner = ["unshare", "--uts", "sh", "-c", f'hostname {name}; exec "$@"', "sh", *map(str, arguments)]
        return ["ip", "netns", "exec", name, *inner]

    def start(self, host: int, *arguments: str | Path, **environment: str) -> subprocess.Popen[str]:
        """Run something on a host."""
        own = {**os.environ, "OMP_NUM_THREADS": "1", **environment}
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        return subprocess.Popen(self.command(host, *arguments), env=own, **pipes)  # type: ignore[call-overload, no-any-return]

    def pull_cable(self) -> None:
        """Let the second host vanish: no packet comes or goes any more."""
        ip("-n", self.names[1], "link", "set", "cable", "down")


def ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True)


@pytest.fixture
def hosts() -> Iterator[Hosts]:
    names = (f"dsal-a{os.getpid()}", f"dsal-b{os.getpid()}")
    folders = [Path("/etc/netns") / name for name in names]
    table = "127.0.0.1 localhost\n" + "".join(f"{at} {name}\n" for at, name in zip(ADDRESSES, names, strict=True))
    try:
        for name, folder in zip(names, folders, strict=True):
            folder.mkdir(parents=True)
            (folder / "hosts").write_text(table)  # `ip netns exec` puts it in the place of /etc/hosts
            ip("netns", "add", name)
            ip("-n", name, "link", "set", "lo", "up")
        ip("-n", names[0], "link", "add", "cable", "type", "veth", "peer", "name", "cable", "netns", names[1])
        for name, address in zip(names, ADDRESSES, strict=True):
            ip("-n", name, "address", "add", f"{address}/24", "dev", "cable")
            ip("-n", name, "link", "set", "cable", "up")
        yield Hosts(names)
    finally:
        for name, folder in zip(names, folders, strict=True):
            subprocess.run(["ip", "netns", "delete", name], check=False, capture_output=True)
            shutil.rmtree(folder, ignore_errors=True)


def options(sample_file: Path, out: Path) -> list[str]:
    return ["run", "--dataset", str(sample_file), "--phases", "5", "--expansion-size", "256", "--no-report",
            "--out", str(out)]  # fmt: skip


def alone(*arguments: str) -> None:
    """The same in one process, without hosts."""
    command = [sys.executable, "-m", "dsal", *arguments]
    subprocess.run(command, check=True, capture_output=True, env={**os.environ, "OMP_NUM_THREADS": "1"})


def assert_equal_to_one_process(sample_file: Path, out: Path, processes: int = 2) -> None:
    single = out.with_name("single")
    alone(*options(sample_file, single))
    assert_same_results(single, out, processes)


def assert_same_results(single: Path, out: Path, processes: int) -> None:
    """Compare all but the commit: somebody may edit the working tree between the two runs."""
    one, other = (comparable(read_results(folder)) for folder in (single, out))
    assert (one["provenance"].pop("processes"), other["provenance"].pop("processes")) == (1, processes)
    del one["provenance"]["commit"], other["provenance"]["commit"]
    assert one == other


def finish(process: subprocess.Popen[str]) -> None:
    out, err = process.communicate(timeout=240)
    assert process.returncode == 0, out + err


def test_the_script_for_slurm(hosts: Hosts, sample_file: Path, tmp_path: Path) -> None:
    script = next(re.finditer(r"```bash\n(#!/bin/bash.*?)```", GUIDE.read_text(), re.DOTALL))[1]
    script = script.replace("--nproc-per-node 8", "--nproc-per-node 1")
    script, found = re.subn(r"-m dsal run .*?--out \S+", "-m dsal " + " ".join(options(sample_file, tmp_path / "two")),
                            script, flags=re.DOTALL)  # fmt: skip
    assert found == 1
    stubs = tmp_path / "bin"
    stubs.mkdir()
    on_each = "\n".join(f'{shlex.join(hosts.command(host))} "$@" &' for host in range(2))
    for name, text in (
        ("scontrol", f"echo {hosts.names[0]}; echo {hosts.names[1]}"),
        ("srun", f"set -e\n{on_each}\nwait %1; wait %2"),
        ("torchrun", f'exec {sys.executable} -m torch.distributed.run "$@"'),
    ):
        (stubs / name).write_text(f"#!/bin/bash\n{text}\n")
        (stubs / name).chmod(0o755)
    variables = {"SLURM_NNODES": "2", "SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "both"}
    (tmp_path / "job.sh").write_text(script.replace("OMP_NUM_THREADS=8", "OMP_NUM_THREADS=1"))
    environment = {**os.environ, **variables, "PATH": f"{stubs}:{os.environ['PATH']}"}
    done = subprocess.run(
        ["bash", tmp_path / "job.sh"], env=environment, capture_output=True, text=True, timeout=240, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert_equal_to_one_process(sample_file, tmp_path / "two")


def test_the_pods_of_kubernetes(hosts: Hosts, sample_file: Path, tmp_path: Path) -> None:
    """What the PyTorchJob sets, and the command it runs."""
    command = next(re.finditer(r"exec torchrun (.*?)-m dsal", GUIDE.read_text(), re.DOTALL))[1]
    words = re.sub(r"\s+", " ", command.replace("\\\n", " ")).replace("--nnodes 8 --nproc-per-node 8", "--nnodes 2 "
                   "--nproc-per-node 1")  # fmt: skip
    asked = " ".join(options(sample_file, tmp_path / "two"))
    line = f"exec {sys.executable} -m torch.distributed.run {words} -m dsal {asked}"
    pods = [
        hosts.start(rank, "sh", "-c", line, RANK=str(rank), MASTER_ADDR=hosts.names[0], MASTER_PORT="23456")
        for rank in range(2)
    ]
    for pod in pods:
        finish(pod)
    assert_equal_to_one_process(sample_file, tmp_path / "two")


def test_a_host_that_vanishes_is_named_and_the_other_goes_on(hosts: Hosts, sample_file: Path, tmp_path: Path) -> None:
    out = tmp_path / "cut"
    asked = ["run", "--dataset", str(sample_file), "--phases", "50", "--expansion-size", "1024", "--no-report",
             "--checkpoint-seconds", "0"]  # fmt: skip
    common = {"WORLD_SIZE": "2", "MASTER_ADDR": hosts.names[0], "MASTER_PORT": "23457", "LOCAL_RANK": "0"}
    ranks = [
        hosts.start(rank, sys.executable, "-m", "dsal", *asked, "--out", out, RANK=str(rank), **common)
        for rank in range(2)
    ]
    try:
        assert ranks[0].stderr is not None
        for line in ranks[0].stderr:
            if line.startswith("phase  2/"):
                break
        hosts.pull_cable()
        pulled = time.monotonic()
        _, said = ranks[0].communicate(timeout=60)
        assert time.monotonic() - pulled < 60
        assert ranks[0].returncode == 1
        assert re.search(rf"error: rank 1 \(process \d+ on {hosts.names[1]}\) stopped: ", said), said
        _, theirs = ranks[1].communicate(timeout=60)  # which sees it the other way round
        assert f"on {hosts.names[0]}" in theirs
    finally:
        for process in ranks:
            process.kill()
            process.communicate()
    assert not (out / "results.json").exists()
    alone("run", "--resume", "--out", str(out), "--no-report")
    single = tmp_path / "single"
    alone(*asked, "--out", str(single))
    assert_same_results(single, out, processes=2)
