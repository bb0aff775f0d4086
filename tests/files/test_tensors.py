"""Files: whole or not there, and never believed without a check."""

from __future__ import annotations

import json
import os
import resource
import signal
import socket
import subprocess
import sys
import time
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file, save_file

from dsal.errors import FileFormatError
from dsal.files.atomic import atomic_write, check_writable
from dsal.files.schema import ANY_TABLE, Schema
from dsal.files.tensors import load_tensors, open_tensors, save_tensors

ARRAYS = {
    "matrix": np.arange(6.0).reshape(2, 3).T,  # not C-contiguous
    "scalar": np.array(3, dtype=np.int64),
    "empty": np.zeros((0, 4), dtype=np.float32),
}
META = {"kind": "thing", "names": ["ä", "b"], "depth": {"a": [1, 2.5, None, True]}}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "thing.safetensors"
    save_tensors(path, {**ARRAYS, "tensor": torch.ones(3, dtype=torch.float16)}, META)
    return path


def test_what_is_saved_is_loaded(file: Path) -> None:
    arrays, meta = load_tensors(file, kind="thing")
    assert meta == META
    assert arrays.keys() == {*ARRAYS, "tensor"}
    for name, array in ARRAYS.items():
        assert arrays[name].dtype == array.dtype
        assert arrays[name].shape == array.shape
        assert np.array_equal(arrays[name], array)
    assert arrays["tensor"].dtype == np.float16


def test_a_file_that_is_replaced_while_it_is_read_is_still_read(file: Path) -> None:
    """Not the head of one and the arrays of the other."""
    with open_tensors(file, Schema("thing", ANY_TABLE, None)) as opened:
        save_tensors(file, {"matrix": np.full((3, 2), 7.0)}, {"kind": "thing"})
        assert np.array_equal(opened.arrays["matrix"].read(), ARRAYS["matrix"])
    assert load_tensors(file)[0]["matrix"].tolist() == [[7.0] * 2] * 3


def test_other_readers_read_it(file: Path) -> None:
    arrays = load_file(file)
    assert arrays.keys() == {*ARRAYS, "tensor"}
    for name, array in ARRAYS.items():
        assert np.array_equal(arrays[name], array)


def test_arrays_are_taken_over_from_an_open_file(file: Path, tmp_path: Path) -> None:
    """Under the same name unread, under another one checked; the new file is what it would be from arrays in memory."""
    arrays, _ = load_tensors(file)
    big = np.arange(3 * 2**18, dtype=np.float64)  # more than one piece
    save_tensors(file, {**arrays, "big": big}, META)
    with open_tensors(file, Schema("thing", ANY_TABLE, None)) as opened:
        stored = opened.arrays
        save_tensors(tmp_path / "new", {"matrix": stored["matrix"], "b": stored["big"], "one": np.ones(1)}, META)
    save_tensors(tmp_path / "same", {"matrix": arrays["matrix"], "b": big, "one": np.ones(1)}, META)
    assert (tmp_path / "new").read_bytes() == (tmp_path / "same").read_bytes()
    content = bytearray(file.read_bytes())
    content[content.index(big.tobytes()) + 8 * len(big) - 1] ^= 1
    file.write_bytes(content)
    with open_tensors(file, Schema("thing", ANY_TABLE, None)) as opened:
        with pytest.raises(FileFormatError, match="the SHA-256 of big does not match"):
            save_tensors(tmp_path / "new", {"b": opened.arrays["big"]}, META)
        save_tensors(tmp_path / "new", {"big": opened.arrays["big"]}, META)
    with pytest.raises(FileFormatError, match="the SHA-256 of big does not match"):
        load_tensors(tmp_path / "new")


def test_equal_contents_make_equal_files(file: Path, tmp_path: Path) -> None:
    again = tmp_path / "again"
    arrays, meta = load_tensors(file)
    save_tensors(again, dict(reversed(arrays.items())), dict(reversed(meta.items())))
    assert again.read_bytes() == file.read_bytes()


def test_permissions_are_those_of_any_new_file(file: Path, tmp_path: Path) -> None:
    (tmp_path / "other").touch()
    assert file.stat().st_mode == (tmp_path / "other").stat().st_mode


def test_a_torn_file_is_refused_wherever_it_is_torn(file: Path) -> None:
    whole = file.read_bytes()
    for length in range(0, len(whole), 13):
        file.write_bytes(whole[:length])
        with pytest.raises(FileFormatError, match=str(file)):
            load_tensors(file)


def test_a_single_flipped_bit_is_noticed_wherever_it_is(file: Path) -> None:
    whole = bytearray(file.read_bytes())
    for place in range(len(whole)):
        whole[place] ^= 1
        file.write_bytes(whole)
        with pytest.raises(FileFormatError):
            load_tensors(file)
        whole[place] ^= 1


@pytest.mark.parametrize("number", [1, 3])
def test_other_formats_are_refused_with_advice(number: int, tmp_path: Path) -> None:
    path = tmp_path / "other"
    save_file({"a": np.ones(2)}, path, {"dsal": json.dumps({"format": number, "sha256": "", "meta": "{}"})})
    with pytest.raises(FileFormatError, match=f"format version {number}; .*: upgrade, or make it again"):
        load_tensors(path)


def test_foreign_files_are_refused(tmp_path: Path, file: Path) -> None:
    save_file({"a": np.ones(2)}, tmp_path / "plain")
    (tmp_path / "text").write_text("hello")
    (tmp_path / "nothing").touch()
    torch.save({"a": torch.ones(2)}, tmp_path / "pickle")
    save_file({"a": np.ones(2)}, tmp_path / "strange", {"dsal": "[1, 2]"})
    for name in ("plain", "text", "nothing", "pickle", "strange"):
        with pytest.raises(FileFormatError, match=name):
            load_tensors(tmp_path / name)
    with pytest.raises(FileFormatError, match="holds a 'thing', not a 'model'"):
        load_tensors(file, kind="model")
    with pytest.raises(FileNotFoundError):
        load_tensors(tmp_path / "missing")


def test_special_files_are_refused_by_name(tmp_path: Path) -> None:
    """Opening a FIFO would wait for ever."""
    fifo, server = tmp_path / "fifo", socket.socket(socket.AF_UNIX)
    os.mkfifo(fifo)
    server.bind(str(tmp_path / "socket"))
    for path, what in ((fifo, "FIFO"), (tmp_path / "socket", "socket"), (tmp_path, "folder"), ("/dev/null", "device")):
        with pytest.raises(FileFormatError, match=f"is a {what}, not a file"):
            load_tensors(path)
        with pytest.raises(OSError, match=f"is a {what}, not a file"):
            save_tensors(path, ARRAYS, META)
    server.close()
    assert fifo.is_fifo()


def test_a_link_is_followed_and_its_target_replaced(file: Path, tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(file.name)
    save_tensors(link, {"a": np.ones(9)}, META)
    assert link.is_symlink()
    assert load_tensors(file)[0].keys() == {"a"}


def test_a_read_only_file_is_refused_and_left_alone(file: Path) -> None:
    before = file.read_bytes()
    file.chmod(0o444)
    with pytest.raises(PermissionError, match="read-only"):
        check_writable(file)
    with pytest.raises(PermissionError, match="read-only"):
        save_tensors(file, {"a": np.ones(9)}, META)
    assert file.read_bytes() == before
    assert list(file.parent.iterdir()) == [file]


@pytest.mark.parametrize(
    "header",
    [
        b"{" + b",".join(b'"%d":{"dtype":"F32","shape":[0],"data_offsets":[0,0]}' % i for i in range(200_000)) + b"}",
        json.dumps({"__metadata__": {"dsal": "[" * 2_000_000}}).encode(),
        json.dumps({"__metadata__": {"dsal": "[1," * 2_000_000}}).encode(),
        b'{"__metadata__":{"dsal":"' + b"x" * 30_000_000 + b'"}}',
    ],
    ids=["arrays", "depth", "values", "text"],
)
def test_a_crafted_header_takes_no_memory(header: bytes, tmp_path: Path) -> None:
    path = tmp_path / "crafted"
    path.write_bytes(len(header).to_bytes(8, "little") + header)
    del header
    tracemalloc.start()
    try:
        with pytest.raises(FileFormatError):
            load_tensors(path)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 2 * path.stat().st_size + 2**20


def test_values_that_are_not_finite_are_refused(tmp_path: Path) -> None:
    for value in (np.nan, -np.inf):
        save_tensors(tmp_path / "file", {"good": np.ones(2), "bad": np.array([1, value], dtype=np.float16)}, META)
        with pytest.raises(FileFormatError, match="bad has values that are not finite"):
            load_tensors(tmp_path / "file")


def test_an_error_while_writing_leaves_the_old_file_and_no_litter(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("old")

    def write_half_then_fail() -> None:
        with atomic_write(path) as temporary:
            temporary.write_text("half of the n")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        write_half_then_fail()
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]
    with atomic_write(path) as temporary:
        temporary.write_text("new")
    assert path.read_text() == "new"
    assert list(tmp_path.iterdir()) == [path]


def test_a_file_is_replaced_not_overwritten(file: Path) -> None:
    """Who has the old file open goes on reading the old file."""
    before = file.read_bytes()
    with file.open("rb") as reader:
        save_tensors(file, {"a": np.ones(9)}, META)
        assert reader.read() == before
    assert file.read_bytes() != before


def test_a_full_disk_leaves_the_old_file(file: Path) -> None:
    """A limit on the size of files stands for the full disk: the write fails in the middle."""
    before = file.read_bytes()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2**20, limits[1]))
    try:
        with pytest.raises(OSError, match="could not write"):
            save_tensors(file, {"large": np.ones(2**20)}, META)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert file.read_bytes() == before
    assert list(file.parent.iterdir()) == [file]


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        save_tensors(tmp_path / "none" / "file", ARRAYS, META)


KILLED = """
import sys, numpy as np
from dsal.files.tensors import save_tensors
large = {str(i): np.full(2**20, i, dtype=np.float64) for i in range(40)}
print("ready", flush=True)
while True:
    save_tensors(sys.argv[1], large, {"kind": "large"})
"""


@pytest.mark.parametrize("delay", [0.05, 0.2, 0.5])
def test_killed_in_the_middle_of_writing_the_file_is_whole(file: Path, delay: float) -> None:
    """The process saves 320 MB over and over; whenever it dies, there is a whole file, old or new."""
    process = subprocess.Popen([sys.executable, "-c", KILLED, str(file)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    deadline = time.monotonic() + 60
    while not list(file.parent.glob(".*.tmp")) and time.monotonic() < deadline:
        time.sleep(0.001)
    time.sleep(delay)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    process.stdout.close()
    arrays, meta = load_tensors(file)
    assert meta["kind"] in ("thing", "large")
    assert len(arrays) == (4 if meta["kind"] == "thing" else 40)
    save_tensors(file, ARRAYS, META)  # removes what the killed process left behind
    assert list(file.parent.iterdir()) == [file]


def test_what_others_are_writing_is_left_alone(file: Path) -> None:
    """Living processes, other machines and other programs."""
    with atomic_write(file.with_name("other")) as temporary:
        temporary.write_text("mine")
        token, _, machine = temporary.parent.name.removesuffix(".tmp").split("-")
        gone = 999_999_999
        others = [f"{token}-{gone}-00000000.tmp", f".editor-{gone}-{machine}.tmp", ".editor.tmp"]
        for name in others:
            (file.parent / name).mkdir()
        (file.parent / f"{token}-{gone}-{machine}.tmp").mkdir()
        save_tensors(file, ARRAYS, META)
        found = {path.name for path in file.parent.iterdir()}
        assert found == {file.name, temporary.parent.name, *others}
    assert file.with_name("other").read_text() == "mine"
