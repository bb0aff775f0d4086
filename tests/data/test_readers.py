"""Reader processes: what they import, and that nothing is left of them, however the work ends."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from dsal.data.images.crop_readers import CropRequest, Readers, read_crops
from dsal.errors import DSALError, InputError

SIDE = 12
LINUX = pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")


@pytest.fixture(scope="module")
def paths(photo_folder: Path) -> list[str]:
    return sorted(map(str, photo_folder.rglob("*.JPEG")))[:10]


def request(paths: list[str], start: int = 0, random: bool = True) -> CropRequest:
    return CropRequest(paths, list(range(len(paths))), SIDE, 3, seed=5, random=random, mirror=True, start=start)


def is_running(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def wait_until_gone(processes: list[int]) -> None:
    until = time.monotonic() + 30
    while any(map(is_running, processes)):
        assert time.monotonic() < until, "readers are still running"
        time.sleep(0.01)


@pytest.mark.parametrize("random", [True, False])
def test_readers_write_what_this_process_would_read(paths: list[str], random: bool) -> None:
    nbytes = len(paths) * SIDE**2 * 3
    expected = np.zeros(nbytes + 7, np.uint8)
    read_crops(request(paths, 7, random), expected)
    with Readers(3, nbytes + 7) as readers:
        for number, path in enumerate(paths):
            one = CropRequest([path], [number], SIDE, 3, 5, random, True, 7 + number * SIDE**2 * 3)
            readers.read(one).result()
        np.testing.assert_array_equal(readers.memory, expected)
    with pytest.raises(InputError, match="at least 1, got 0"):
        Readers(0, 1)


def test_readers_import_neither_torch_nor_scipy() -> None:
    code = "import sys, dsal.data.images.crop_readers; print({'torch', 'scipy', 'sklearn'} & set(sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "set()\n"


@LINUX
def test_readers_start_when_needed_and_nothing_is_left_of_them(paths: list[str]) -> None:
    def work(readers: Readers) -> None:
        with readers:
            assert readers.processes == []
            for _ in range(3):
                readers.read(request(paths)).result()
            assert len(readers.processes) == 1
            for _ in range(50):
                readers.read(request(paths))
            raise KeyboardInterrupt

    descriptors = len([*Path("/proc/self/fd").iterdir()])
    readers = Readers(4, SIDE**2 * 3 * len(paths))
    with pytest.raises(KeyboardInterrupt):
        work(readers)
    assert 1 <= len(readers.processes) <= 4
    assert not any(map(is_running, readers.processes))
    memory = readers.memory
    del readers
    assert memory.any()  # still there for those who use it
    del memory
    gc.collect()
    assert len([*Path("/proc/self/fd").iterdir()]) == descriptors


@LINUX
def test_a_reader_that_dies_is_reported_and_replaced(paths: list[str]) -> None:
    with Readers(1, SIDE**2 * 3 * len(paths)) as readers:
        readers.read(request(paths)).result()
        os.kill(readers.processes[0], signal.SIGKILL)
        with pytest.raises(DSALError, match=rf"ended with status -9 while reading {paths[0]} and 9 other files"):
            readers.read(request(paths)).result()
        readers.read(request(paths)).result()
        assert len(readers.processes) == 2


SCRIPT = """
import signal, sys, time
from dsal.data.images.crop_readers import CropRequest
from dsal.data.images.crop_readers import Readers

signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it
paths = sys.argv[1:] * 50
with Readers(2, 500 * 12**2 * 3) as readers:  # no "if __name__ == '__main__'" is needed
    both = [readers.read(CropRequest(paths, [*range(500)], 12, 3, 5, True, True)) for _ in range(200)]
    both[0].result(), both[1].result()
    print(*readers.processes, flush=True)
    time.sleep(60)
"""


@LINUX
@pytest.mark.parametrize("kind", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_readers_end_with_the_process_that_started_them(paths: list[str], kind: signal.Signals) -> None:
    """A signal to the group, as by Ctrl-C, in the middle of the work."""
    command = [sys.executable, "-c", SCRIPT, *paths]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, start_new_session=True) as process:
        assert process.stdout is not None
        readers = [int(number) for number in process.stdout.readline().split()]
        assert len(readers) == 2
        os.killpg(process.pid, kind)
        _, said = process.communicate(timeout=30)
    wait_until_gone(readers)
    assert said.count("Traceback") == (kind == signal.SIGINT)  # the readers say nothing
