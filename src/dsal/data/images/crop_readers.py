"""Random crops of image files, and processes that read them into memory shared with this one.

A crop depends only on (seed, position in the epoch), so the same pixels are read in any order by any process.

Processes, not threads: a thread waits for Python's lock between two calls of Pillow, which costs a third of the speed
if photographs are small. A reader imports NumPy and Pillow, but not PyTorch. It gets one request at a time through a
pipe, as a line of JSON, writes the pixels to the shared memory, and answers with an error message or an empty text. In
this process, one thread per reader waits for the answers.

Nothing is left behind, whatever ends this process: the memory has no name, so the system frees it with the last process
that uses it, and a reader ends when its pipe is closed.
"""

from __future__ import annotations

import json
import math
import mmap
import os
import secrets
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from random import Random
from tempfile import TemporaryFile
from types import TracebackType

import numpy as np
from numpy.typing import NDArray

from dsal.data.images.decode import decode_crop, decode_image
from dsal.errors import DSALError, FileFormatError, InputError

AREA, RATIO = (0.08, 1.0), (3 / 4, 4 / 3)
"""Fraction of the area and width / height of a random crop, as is usual on ImageNet."""
_TRIES = 10
# sys.path comes before the first import: nothing may be imported from the current folder by accident.
_START = (
    f"import sys; sys.path[:] = sys.argv[3:]; from {__name__} import answer_requests; answer_requests(*sys.argv[1:3])"
)
_ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}


@dataclass(frozen=True)
class CropRequest:
    """Crops to read, and where to write them.

    Attributes:
        paths: the files (n).
        positions: positions of these images in the epoch (n).
        size: side of the crops in pixels.
        channels: 3 for colour, 1 for grey.
        seed: of the epoch.
        random: take random crops; else the middle of each image, as for testing.
        mirror: mirror half of the random crops.
        start: where the crops begin in memory.
    """

    paths: Sequence[str]
    positions: Sequence[int]
    size: int
    channels: int
    seed: int
    random: bool
    mirror: bool
    start: int = 0

    @property
    def nbytes(self) -> int:
        """Size of the crops."""
        return len(self.paths) * self.size**2 * self.channels

    def part(self, memory: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """Return the part of ``memory`` (bytes,) where the crops are written, as (n, size, size, channels)."""
        return memory[self.start : self.start + self.nbytes].reshape(-1, self.size, self.size, self.channels)


def read_crops(request: CropRequest, memory: NDArray[np.uint8]) -> None:
    """Read the requested crops into ``memory`` (bytes,).

    Raises:
        FileFormatError: a file cannot be read; the message names it.
    """
    size, channels, out = request.size, request.channels, request.part(memory)
    for place, path, position in zip(out, map(Path, request.paths), request.positions, strict=True):
        if not request.random:
            place[:] = decode_image(path, size, channels).transpose(1, 2, 0)
            continue
        draw = Random(f"{request.seed} {position}")  # a text seed is hashed: neighbours share nothing
        flip = draw.random() < 0.5 and request.mirror
        place[:] = decode_crop(path, size, channels, partial(random_box, draw=draw), mirror=flip)


def random_box(width: int, height: int, draw: Random) -> tuple[int, int, int, int]:
    """Return left, upper, right and lower border of a crop of random area and shape (Szegedy et al., 2015).

    If ten draws do not fit into the image, take its middle, as large as ``RATIO`` allows.
    """
    for _ in range(_TRIES):
        area = width * height * draw.uniform(*AREA)
        ratio = math.exp(draw.uniform(math.log(RATIO[0]), math.log(RATIO[1])))
        w, h = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
        if 0 < w <= width and 0 < h <= height:
            left, upper = draw.randint(0, width - w), draw.randint(0, height - h)
            return left, upper, left + w, upper + h
    w, h = min(width, round(height * RATIO[1])), min(height, round(width / RATIO[0]))
    left, upper = (width - w) // 2, (height - h) // 2
    return left, upper, left + w, upper + h


class Readers:
    """Reader processes and the memory they write to; a context manager that ends the processes.

    Args:
        workers: maximum number of processes; each is started when there is work for it.
        nbytes: size of the memory.

    Attributes:
        workers: as above.
        memory: uint8 (nbytes,); readers overwrite the parts that are requested again.
    """

    def __init__(self, workers: int, nbytes: int) -> None:
        if workers < 1:
            raise InputError(f"workers must be at least 1, got {workers}")
        self.workers = workers
        self._name = _create_memory(nbytes)
        self.memory = _open_memory(self._name, nbytes)
        self._pool = ThreadPoolExecutor(workers, thread_name_prefix="dsal-read")
        self._started: list[subprocess.Popen[bytes]] = []
        self._idle: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> Readers:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)
        for process in self._started:
            process.kill()  # it has nothing to save, and its thread stops waiting
        self._pool.shutdown(wait=True)
        for process in self._started:  # one may have been started meanwhile
            process.kill()
            with suppress(OSError), process:  # closes the pipes, of which one may be broken, and waits
                pass
        if sys.platform != "win32":
            os.close(int(self._name))

    @property
    def processes(self) -> list[int]:
        """Numbers of the processes started so far."""
        return [process.pid for process in self._started]

    def read(self, request: CropRequest) -> Future[None]:
        """Let a reader fill the requested part of the memory.

        Returns:
            a future that raises FileFormatError if a file cannot be read, and DSALError if the reader dies.
        """
        return self._pool.submit(self._ask, request)

    def _ask(self, request: CropRequest) -> None:
        try:
            process = self._idle.pop()
        except IndexError:
            process = self._start()
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write(json.dumps(vars(request)).encode() + b"\n")
            process.stdin.flush()
            answer = process.stdout.readline()
        except OSError:  # a broken pipe
            answer = b""
        if not answer:
            raise DSALError(
                f"a process that reads images ended with status {process.wait()} while reading {request.paths[0]} and "
                f"{len(request.paths) - 1} other files: see the error above. If there is none, memory ran out (try "
                "fewer workers), or one of these files crashed the decoder"
            )
        self._idle.append(process)
        if message := json.loads(answer):
            raise FileFormatError(message)

    def _start(self) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            [sys.executable, "-c", _START, self._name, str(len(self.memory)), *sys.path],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, **_ONE_THREAD},
            pass_fds=() if sys.platform == "win32" else (int(self._name),),
            start_new_session=True,  # Ctrl-C is for the process that knows what to do
        )
        self._started.append(process)
        return process


def answer_requests(name: str, nbytes: str) -> None:
    """Answer requests from standard input until it is closed; the main function of a reader."""
    memory = _open_memory(name, int(nbytes))
    answers = os.dup(1)
    os.dup2(2, 1)  # what a decoder prints is not an answer
    for line in sys.stdin.buffer:
        message = ""
        try:
            read_crops(CropRequest(**json.loads(line)), memory)
        except FileFormatError as error:
            message = str(error)
        try:
            os.write(answers, json.dumps(message).encode() + b"\n")
        except BrokenPipeError:  # nobody is waiting
            return


def _create_memory(nbytes: int) -> str:
    """Create memory without a name in the file system; return what :func:`_open_memory` needs to find it."""
    if sys.platform == "win32":
        return secrets.token_hex(16)
    if hasattr(os, "memfd_create"):  # unlike /dev/shm, which is small in containers
        memory = os.memfd_create("dsal-readers")
    else:
        with TemporaryFile() as file:
            memory = os.dup(file.fileno())
    os.truncate(memory, nbytes)
    return str(memory)


def _open_memory(name: str, nbytes: int) -> NDArray[np.uint8]:
    """Return the memory as an array (nbytes,), which all processes share that open it."""
    if sys.platform == "win32":
        return np.frombuffer(mmap.mmap(-1, nbytes, tagname=name), np.uint8)
    return np.frombuffer(mmap.mmap(int(name), nbytes), np.uint8)
