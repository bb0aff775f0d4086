"""The Flower app with the real Flower: its simulation, and SuperLink and SuperNodes as processes on this machine.

`pip install 'dsal-learn[flower]'` in an environment of its own.
"""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_digits
from tests.docs.pages import ROOT, shown_command

from dsal import DSALClassifier
from dsal.errors import InputError

pytestmark = pytest.mark.slow
pytest.importorskip("flwr", reason="pip install 'dsal-learn[flower]' in an environment of its own")
APP = Path(__file__).parent / "flower_app"
PAGE = ROOT / "docs" / "integrations" / "flower.md"
X, Y = load_digits(return_X_y=True)
X = X / 16


def test_the_page_shows_what_is_tested() -> None:
    for name in ("digits.py", "pyproject.toml"):
        assert (APP / name).read_text(encoding="utf-8") in PAGE.read_text(encoding="utf-8")


def simulate(number: int, drop: tuple[int, ...] = (), later: Path | None = None, **options: Any) -> Any:
    """Federate ``number`` simulated clients; those in ``drop`` fail, or only from their second message on.

    Args:
        number: of clients.
        drop: the clients that fail.
        later: a folder for marks of first messages; None if clients fail at once.
        options: of ``federate``.
    """
    from flwr.serverapp import ServerApp
    from flwr.simulation import run_simulation

    from dsal.integrations.flower import client_app, federate

    os.environ |= {"RAY_worker_niceness": "0", "RAY_USAGE_STATS_ENABLED": "0", "FLWR_TELEMETRY_ENABLED": "0"}
    model, found, server = options.pop("model"), [], ServerApp()

    def rows(context: Any) -> Any:
        mine = int(context.node_config["partition-id"])
        if mine in drop and (later is None or (later / str(mine)).exists()):
            raise RuntimeError("this client fails")
        if later is not None:
            (later / str(mine)).touch()
        return X[mine::number], Y[mine::number]

    @server.main()
    def main(grid: Any, context: Any) -> None:
        waited = number if later else number - len(drop)
        found.append(federate(grid, model, clients=waited, least=number - len(drop), timeout=500, **options))

    resources = {"client_resources": {"num_cpus": 1, "num_gpus": 0}, "init_args": {"num_cpus": 2}}
    run_simulation(server, client_app(rows), num_supernodes=number, backend_config=resources)
    return found[0]


def test_twenty_simulated_clients_of_which_one_fails() -> None:
    model = DSALClassifier(expansion_size=256, compensation=None)
    found = simulate(20, drop=(7,), model=model)
    assert found.clients == [str(i) for i in range(20) if i != 7]
    kept = np.arange(len(Y)) % 20 != 7
    pooled = DSALClassifier(expansion_size=256, compensation=None).fit(X[kept], Y[kept])
    assert found.model.classes_.tolist() == pooled.classes_.tolist()
    assert np.abs(found.model.coef_main_ - pooled.coef_main_).max() < 1e-8
    assert found.received["0"] == pytest.approx(8 * (256 * 257 / 2 + 256 * 10), rel=0.02)
    print(f"20 clients, 1 failed: {found.seconds:.1f} s, {found.received['0']} bytes each")


def test_three_simulated_clients_send_few_numbers() -> None:
    """A truncated factor: fewer bytes, and an error that stays within what is stated."""
    found = simulate(3, model=DSALClassifier(expansion_size=1024, compensation=None), tolerance=1e-3)
    pooled = DSALClassifier(expansion_size=1024, compensation=None).fit(X, Y)
    assert 0 < found.error <= 3e-3
    assert np.linalg.norm(found.model.coef_main_ - pooled.coef_main_) <= found.error * np.linalg.norm(pooled.coef_main_)
    assert found.received["0"] < 0.9 * 8 * (1024 * 1025 / 2 + 1024 * 10)
    print(f"3 clients, tolerance 1e-3: {found.seconds:.1f} s, {found.received['0']} bytes each")


def test_the_server_adds_what_it_cannot_read(tmp_path: Path) -> None:
    """Secure aggregation; a client fails after its key was handed out, and the others start over without it."""
    model = DSALClassifier(expansion_size=256)
    found = simulate(5, drop=(3,), later=tmp_path, model=model, secure=True)
    assert found.clients == ["0", "1", "2", "4"]
    assert "3" in found.left_out
    kept = np.arange(len(Y)) % 5 != 3
    pooled = DSALClassifier(expansion_size=256).fit(X[kept], Y[kept])
    order = np.argsort(found.model.classes_)
    assert np.abs(found.model.coef_main_[:, order] - pooled.coef_main_).max() < 1e-8
    print(f"4 clients, masked: {found.seconds:.1f} s, {found.received['0']} bytes each")


def test_simulated_clients_as_phases() -> None:
    model = DSALClassifier(expansion_size=256)
    found = simulate(3, model=model, phases=True)
    alone = DSALClassifier(expansion_size=256)
    for mine in range(3):
        alone.partial_fit(X[mine::3], Y[mine::3])
    assert np.abs(found.model.coef_main_ - alone.coef_main_).max() < 1e-8
    assert np.abs(found.model.coef_comp_ - alone.coef_comp_).max() < 1e-8
    assert np.abs(found.model.logits(X) - alone.logits(X)).max() < 1e-8


@pytest.fixture
def processes() -> Iterator[list[subprocess.Popen[bytes]]]:
    started: list[subprocess.Popen[bytes]] = []
    yield started
    for process in started:
        if process.poll() is None:
            process.terminate()
    for process in started:
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def test_real_processes_one_dead_and_one_restarted(tmp_path: Path, processes: list[subprocess.Popen[bytes]]) -> None:
    """Three clients and a fourth that dies: client 1 dies while it learns, and comes back as another node."""
    link, out, once = free_port(), tmp_path / "model.safetensors", tmp_path / "once"
    home, app = tmp_path / "home", tmp_path / "app"
    home.mkdir()
    shutil.copytree(APP, app, ignore=shutil.ignore_patterns("__pycache__"))
    code = (app / "digits.py").read_text()
    marker = f"__import__('pathlib').Path({str(once)!r})"
    dies = f"    if mine == 1 and not {marker}.exists():\n        {marker}.touch()\n"
    dies += "        __import__('os')._exit(1)\n    return"
    (app / "digits.py").write_text(code.replace("    return", dies, 1))
    (home / "config.toml").write_text(
        f'[superlink]\ndefault = "here"\n[superlink.here]\naddress = "127.0.0.1:{link}"\ninsecure = true\n'
    )
    bin_ = Path(sys.executable).parent
    env = {**os.environ, "FLWR_HOME": str(home), "FLWR_TELEMETRY_ENABLED": "0", "OMP_NUM_THREADS": "1"}
    env["PATH"] = f"{bin_}{os.pathsep}{env['PATH']}"

    def start(name: str, *arguments: object) -> subprocess.Popen[bytes]:
        log = (tmp_path / f"{name}-{len(processes)}.log").open("wb")
        command = [str(bin_ / name), "--insecure", *map(str, arguments)]
        processes.append(subprocess.Popen(command, env=env, cwd=tmp_path, stdout=log, stderr=log))
        return processes[-1]

    def node(mine: int) -> subprocess.Popen[bytes]:
        address = ("--superlink", f"127.0.0.1:{link}", "--port", free_port())
        return start("flower-supernode", *address, "--node-config", f"partition-id={mine}")

    def logs() -> str:
        return "\n".join(path.read_text(errors="replace")[-3000:] for path in sorted(tmp_path.glob("*.log")))

    def until(condition: Any, seconds: float) -> None:
        end = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < end, logs()
            time.sleep(0.5)

    def listening() -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", link)) == 0

    start("flower-superlink", "--disable-runtime-dependency-installation", "--port", link)
    until(listening, 120)
    nodes = {mine: node(mine) for mine in (0, 1, 2, 9)}
    time.sleep(15)
    nodes[9].kill()  # it registered, and will never answer
    program, *words = shown_command(PAGE, "flwr run")
    words[words.index(".")] = str(app)
    run = [str(bin_ / program), *words, "here", "--run-config", f"out='{out}'"]
    started = time.monotonic()
    done = subprocess.run(run, env=env, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    until(once.exists, 240)
    nodes[1].kill()
    node(1)
    until(out.exists, 300)
    print(f"3 processes, 1 restarted and 1 dead: {time.monotonic() - started:.1f} s")
    model = DSALClassifier.load(out)
    pooled = DSALClassifier(expansion_size=256, compensation=None).fit(X, Y)
    assert np.abs(model.coef_main_ - pooled.coef_main_).max() < 1e-8


def test_too_few_clients_are_an_error() -> None:
    from dsal.integrations.flower import federate

    class Nobody:
        def get_node_ids(self) -> list[int]:
            return []

    with pytest.raises(InputError, match="0 of 2 clients answered"):
        federate(Nobody(), DSALClassifier(expansion_size=16, compensation=None), clients=2, timeout=0.5)
    with pytest.raises(InputError, match="phases matter"):
        federate(Nobody(), DSALClassifier(expansion_size=16, compensation=None), clients=2, phases=True)
    with pytest.raises(InputError, match="secure works without"):
        federate(Nobody(), DSALClassifier(expansion_size=16), clients=2, secure=True, dtype="float32")


def test_sizes_on_the_page() -> None:
    """268 MB for the triangle at d_B 8192, as the page says."""
    (told,) = re.findall(r"([\d.]+) MB at d_B 8192\s+with 100 classes", PAGE.read_text(encoding="utf-8"))
    assert float(told) == pytest.approx((8 * (8192 * 8193 / 2 + 8192 * 100)) / 1e6, rel=0.005)
