"""Reader of CIFAR's pickles that does not run the code a pickle may ask for.

A pickle is a program: it can name any importable object and call it. This reader resolves no import at all. The few
NumPy names that a pickled uint8 array needs resolve to stand-ins defined here, which accept only plain uint8 data; any
other name is refused.
"""

from __future__ import annotations

import math
import pickle
from collections.abc import Callable
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from dsal.errors import FileFormatError


def load_restricted(file: BinaryIO, where: str) -> dict[str, object]:
    """Read one pickled dict of containers, numbers, strings and uint8 arrays.

    Args:
        file: the pickle, open for reading.
        where: what to call the file in errors.

    Returns:
        the dict; keys that were ``bytes`` (written by Python 2) come back as ``str``.

    Raises:
        FileFormatError: the pickle is truncated or corrupt, holds no dict, or asks for anything else; the message says
            what.
    """
    try:
        # latin1 turns the byte strings of Python 2 into str one to one, so that array data survives.
        content = _Unpickler(file, encoding="latin1").load()
        if not isinstance(content, dict):
            raise FileFormatError(f"expected a dict, got a {type(content).__name__}")
        return {_text(key): value.values() if isinstance(value, _Array) else value for key, value in content.items()}
    except FileFormatError as error:
        raise FileFormatError(f"{where}: {error}") from None
    except Exception as error:  # a damaged pickle can raise anything, as the pickle documentation warns
        raise FileFormatError(
            f"{where} is truncated, corrupt or not a pickle ({type(error).__name__}: {error})"
        ) from error


def _text(key: object) -> str:
    return key.decode("latin1") if isinstance(key, bytes) else str(key)


class _Dtype:
    """Stand-in for ``numpy.dtype`` that accepts only uint8."""

    def __init__(self, code: object, *_: object) -> None:
        if code not in ("u1", b"u1", "|u1"):
            raise FileFormatError(f"refused an array of type {code!r}; only uint8 arrays are read")

    def __setstate__(self, state: object) -> None:
        """Ignore byte order and alignment, which mean nothing for single bytes."""


class _Array:
    """Stand-in for ``numpy.ndarray`` until its bytes have been read."""

    def __init__(self) -> None:
        self._values: NDArray[np.uint8] | None = None

    def __setstate__(self, state: tuple[object, ...]) -> None:
        _, shape, dtype, fortran, data = state
        self._values = _array(data, dtype, shape, "F" if fortran else "C")

    def values(self) -> NDArray[np.uint8]:
        if self._values is None:
            raise FileFormatError("an array has no content")
        return self._values


def _array(data: object, dtype: object, shape: object, order: str) -> NDArray[np.uint8]:
    raw = data.encode("latin1") if isinstance(data, str) else data
    if not isinstance(raw, bytes | bytearray) or not isinstance(dtype, _Dtype) or not isinstance(shape, tuple):
        raise FileFormatError("an array is not made of plain bytes")
    if not all(isinstance(n, int) and n >= 0 for n in shape) or math.prod(shape) != len(raw):
        raise FileFormatError(f"an array of shape {shape} cannot hold {len(raw)} bytes")
    return np.frombuffer(raw, dtype=np.uint8).reshape(shape, order="F" if order == "F" else "C")


def _reconstruct(*_: object) -> _Array:
    """Stand in for NumPy's empty array; shape and content follow in ``__setstate__``."""
    return _Array()


def _from_buffer(data: object, dtype: object, shape: object, order: str) -> NDArray[np.uint8]:
    """Stand in for what NumPy writes at pickle protocol 5."""
    return _array(data, dtype, shape, order)


_STAND_INS: dict[tuple[str, str], Callable[..., object]] = {
    ("numpy", "ndarray"): _Array,
    ("numpy", "dtype"): _Dtype,
    ("numpy.core.multiarray", "_reconstruct"): _reconstruct,  # NumPy 1, and the official archives
    ("numpy._core.multiarray", "_reconstruct"): _reconstruct,
    ("numpy.core.numeric", "_frombuffer"): _from_buffer,
    ("numpy._core.numeric", "_frombuffer"): _from_buffer,
}


class _Unpickler(pickle._Unpickler):
    """The standard library's pure-Python reader: the one in C lets ten bytes of a bad file claim all memory."""

    def find_class(self, module: str, name: str) -> Callable[..., object]:
        try:
            return _STAND_INS[module, name]
        except KeyError:
            raise FileFormatError(
                f"the pickle asks for {module}.{name}, which no CIFAR file needs; it was not read"
            ) from None

    def get_extension(self, code: int) -> None:
        raise FileFormatError(f"the pickle asks for extension {code}, which no CIFAR file needs; it was not read")

    def persistent_load(self, pid: object) -> object:
        raise FileFormatError("the pickle asks for a persistent object, which no CIFAR file needs; it was not read")
