"""Damaged and lying files over every reader: refused by a named error, or harmless; no hang, no memory, no NaN."""

from __future__ import annotations

import resource
import signal
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.fuzz.mutate import break_bytes
from tests.fuzz.readers import READERS, Reader, copy

from dsal.errors import DSALError

SECONDS = 30  # that reading and using a file of some kilobytes may take
MEMORY = 2**30  # that it may take, of any kind
SLACK = 2**22  # of Python and NumPy, beyond twice the file's size and twice what reading the good file takes
SHORT, LONG = 20, 10_000 // len(READERS) + 1


@contextmanager
def bounded() -> Iterator[None]:
    """Whoever takes too long or too much memory fails."""

    def expired(*_: object) -> None:
        raise AssertionError(f"not done after {SECONDS} seconds")

    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limits, handler = resource.getrlimit(resource.RLIMIT_AS), signal.signal(signal.SIGALRM, expired)
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + MEMORY, limits[1]))
    signal.alarm(SECONDS)
    try:
        yield
    finally:
        signal.alarm(0)
        resource.setrlimit(resource.RLIMIT_AS, limits)
        signal.signal(signal.SIGALRM, handler)


def finite(answer: Any) -> bool:
    """Whether all numbers of an answer are finite."""
    if isinstance(answer, (list, tuple)):
        return all(map(finite, answer))
    return answer is None or bool(np.isfinite(answer).all())


def fuzz(name: str, mutations: int, tmp_path: Path) -> None:
    reader, good, bad = READERS[name], tmp_path / "good", tmp_path / "bad"
    good.mkdir()
    reader.make(good)
    assert finite(reader.use(good))
    tracemalloc.start()
    try:
        _mutations(reader, good, bad, mutations, name)
    finally:
        tracemalloc.stop()


def _mutations(reader: Reader, good: Path, bad: Path, mutations: int, name: str) -> None:
    before = tracemalloc.get_traced_memory()[0]
    tracemalloc.reset_peak()
    reader.use(good)
    needed = tracemalloc.get_traced_memory()[1] - before
    refused = 0
    for number in range(mutations):
        copy(good, bad)
        random = np.random.default_rng(number)
        what = (reader.lie if number % 2 else break_bytes)(bad / reader.file, random)
        title, limit = f"{name}, mutation {number} ({what})", 2 * ((bad / reader.file).stat().st_size + needed) + SLACK
        was_refused, taken = _use(reader, bad, title)
        if taken > limit:  # now and then Python rebuilds its table of interned strings (7.7 MB): again, without that
            taken = _use(reader, bad, title)[1]
        assert taken <= limit, f"{title} takes {taken} bytes"
        refused += was_refused
    assert refused > mutations / 4  # the mutations do bite


def _use(reader: Reader, bad: Path, title: str) -> tuple[bool, int]:
    """Read and use a mutated file; return whether it was refused, and the memory taken in bytes."""
    before = tracemalloc.get_traced_memory()[0]
    tracemalloc.reset_peak()  # of this mutation alone
    refused = False
    try:
        with bounded():
            answer = reader.use(bad)
    except DSALError:
        refused = True
    except BaseException as error:
        raise AssertionError(f"{title}: {error!r}") from error
    else:
        assert finite(answer), f"{title} answers with NaN or infinities"
    return refused, tracemalloc.get_traced_memory()[1] - before


@pytest.mark.parametrize("name", READERS)
def test_mutated_files(name: str, tmp_path: Path) -> None:
    fuzz(name, SHORT, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("name", READERS)
def test_ten_thousand_mutated_files(name: str, tmp_path: Path) -> None:
    fuzz(name, LONG, tmp_path)
