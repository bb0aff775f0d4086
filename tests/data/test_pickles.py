"""The restricted reader: what CIFAR needs passes, everything else is refused before it runs."""

import contextlib
import copyreg
import io
import os
import pickle
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsal.data.sets.cifar import CIFAR100, load_restricted
from dsal.errors import FileFormatError

from .cifar_files import DUMPS, Dump, contents, dump_as_python2

CONTENT = contents(CIFAR100)["train"]


def read(raw: bytes) -> dict[str, object]:
    return load_restricted(io.BytesIO(raw), "the file")


@pytest.mark.parametrize("dump", DUMPS)
@pytest.mark.parametrize("order", ["C", "F"])
def test_arrays_and_lists_come_back_as_they_were(dump: Dump, order: str) -> None:
    pixels = np.array(CONTENT["data"], order=order)
    back = read(dump({**CONTENT, "data": pixels}))
    assert back.keys() == CONTENT.keys()
    assert isinstance(back["data"], np.ndarray)
    assert back["data"].dtype == np.uint8
    assert np.array_equal(back["data"], CONTENT["data"])
    assert back["fine_labels"] == CONTENT["fine_labels"]


class Attack:
    """A pickle of this calls ``function(*arguments)`` when it is read without care."""

    def __init__(self, function: object, *arguments: object) -> None:
        self.function, self.arguments = function, arguments

    def __reduce__(self) -> tuple[object, tuple[object, ...]]:
        return self.function, self.arguments


def touch(path: str) -> None:
    Path(path).touch()


@pytest.mark.parametrize("protocol", range(6))
def test_a_malicious_pickle_is_named_and_never_run(protocol: int, tmp_path: Path) -> None:
    mark = tmp_path / "owned"
    raw = pickle.dumps({"data": Attack(touch, str(mark))}, protocol=protocol)
    pickle.loads(raw)
    assert mark.exists(), "the attack works where pickles are read without care"
    mark.unlink()
    with pytest.raises(FileFormatError, match=r"the file: .*\.touch"):
        read(raw)
    assert not mark.exists()


@pytest.mark.parametrize(
    "module_and_name",
    [
        ("os", "system"),
        ("posix", "system"),
        ("builtins", "eval"),
        ("__builtin__", "eval"),  # Python 2's name, which pickle would translate
        ("builtins", "getattr"),
        ("numpy", "load"),
        ("numpy", "ndarray.tofile"),
        ("numpy.core.multiarray", "fromfile"),
        ("_codecs", "encode"),
        ("dsal.data.sets.cifar", "pickle.loads"),
    ],
)
@pytest.mark.parametrize("opcode", ["GLOBAL", "STACK_GLOBAL", "INST"])
def test_every_way_to_name_a_global_is_refused(module_and_name: tuple[str, str], opcode: str) -> None:
    module, name = module_and_name
    ask = {
        "GLOBAL": b"c" + f"{module}\n{name}\n".encode(),
        "STACK_GLOBAL": b"".join(b"\x8c" + bytes([len(s)]) + s.encode() for s in (module, name)) + b"\x93",
        "INST": b"(i" + f"{module}\n{name}\n".encode(),
    }[opcode]
    with pytest.raises(FileFormatError, match=f"asks for .*{name.rpartition('.')[2]}"):
        read(b"\x80\x04}\x8c\x04data" + ask + b"s.")


def test_extension_codes_and_persistent_ids_are_refused() -> None:
    copyreg.add_extension("os", "system", 240)
    try:
        assert pickle.loads(b"\x80\x02\x82\xf0.") is os.system  # which leaves it in pickle's own table, too
        with pytest.raises(FileFormatError, match="extension 240"):
            read(b"\x80\x02\x82\xf0.")
    finally:
        copyreg.remove_extension("os", "system", 240)
    with pytest.raises(FileFormatError, match="persistent"):
        read(b"Pabc\n.")


def test_arrays_of_other_types_are_refused() -> None:
    for array in (np.zeros(3), np.array([{}], dtype=object), np.zeros(2, dtype=[("a", "u1")])):
        with pytest.raises(FileFormatError, match="only uint8"):
            read(pickle.dumps({"data": array}, protocol=4))


@given(st.integers(0, len(dump_as_python2(CONTENT)) - 1))
def test_torn_files_are_refused_wherever_they_end(length: int) -> None:
    with pytest.raises(FileFormatError, match="the file"):
        read(dump_as_python2(CONTENT)[:length])


@given(st.data())
def test_damaged_files_give_a_named_error_or_a_dict(data: st.DataObject) -> None:
    raw = bytearray(dump_as_python2(contents(CIFAR100, rows=1)["train"]))
    for _ in range(data.draw(st.integers(1, 4))):
        raw[data.draw(st.integers(0, 300))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(FileFormatError):
        assert isinstance(read(bytes(raw)), dict)


def test_a_huge_memo_index_claims_no_memory() -> None:
    tracemalloc.start()
    try:
        assert read(b"\x80\x02}r\x00\x00\x40\x00.") == {}
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
    finally:
        tracemalloc.stop()


def test_an_array_that_claims_another_size_is_refused() -> None:
    raw = pickle.dumps({"data": np.arange(6, dtype=np.uint8).reshape(2, 3)}, protocol=4)
    with pytest.raises(FileFormatError, match="6 bytes"):
        read(raw.replace(b"K\x02K\x03\x86", b"K\x02K\x04\x86"))


def test_only_a_dict_is_a_cifar_file() -> None:
    with pytest.raises(FileFormatError, match="dict"):
        read(pickle.dumps([1, 2]))
