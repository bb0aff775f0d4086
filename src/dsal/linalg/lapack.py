"""BLAS and LAPACK on blocks of column-major matrices: in place, without copies, without holding the GIL.

SciPy exposes pointers to the functions of the library it is built with (``scipy.linalg.cython_blas`` and
``cython_lapack``). Its Python wrappers hold the GIL and require contiguous arrays; these calls do neither. Every array
is float64 (:func:`product_` also takes float32) with columns that are contiguous in memory, such as a block
``a[i:j, k:l]`` of a column-major matrix.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


@cache
def _function(name: str, arguments: int) -> Callable[..., None]:
    from scipy.linalg import cython_blas, cython_lapack

    table = cython_blas.__pyx_capi__ if name in cython_blas.__pyx_capi__ else cython_lapack.__pyx_capi__
    name_of, pointer_of = ctypes.pythonapi.PyCapsule_GetName, ctypes.pythonapi.PyCapsule_GetPointer
    name_of.restype, name_of.argtypes = ctypes.c_char_p, [ctypes.py_object]
    pointer_of.restype, pointer_of.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    kind = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * arguments)
    return kind(pointer_of(table[name], name_of(table[name])))


def _call(name: str, *arguments: Any) -> None:
    """Call a Fortran function: every argument is passed by address, a matrix together with its leading dimension."""
    pointers: list[Any] = []
    for argument in arguments:
        if isinstance(argument, np.ndarray):
            pointers.append(argument.ctypes.data)
            if argument.ndim == 2:
                pointers.append(ctypes.byref(ctypes.c_int(_leading(argument))))
        elif isinstance(argument, bytes):
            pointers.append(ctypes.c_char_p(argument))
        elif isinstance(argument, int):
            pointers.append(ctypes.byref(ctypes.c_int(argument)))
        else:
            pointers.append(ctypes.byref(argument))
    _function(name, len(pointers))(*pointers)


def _leading(matrix: Array) -> int:
    """Return the leading dimension: the distance between two columns, in numbers."""
    rows, columns = matrix.shape
    down, across = (stride // matrix.itemsize for stride in matrix.strides)
    if (rows > 1 and down != 1) or (columns > 1 and across < rows):
        raise ValueError(f"columns must be contiguous in memory; these have strides of {down} and {across} numbers")
    return max(across if columns > 1 else rows, 1)


def product_(c: Array, a: Array, b: Array, alpha: float = 1.0, beta: float = 0.0, ways: bytes = b"NN") -> None:
    """C <- alpha op(A) op(B) + beta C; ``ways`` says for A and for B whether to transpose it (T) or not (N)."""
    kind, number = ("s", ctypes.c_float) if c.dtype == np.float32 else ("d", ctypes.c_double)
    inner = a.shape[0] if ways[:1] == b"T" else a.shape[1]
    _call(f"{kind}gemm", ways[:1], ways[1:], *c.shape, inner, number(alpha), a, b, number(beta), c)


def symmetric_product_(c: Array, a: Array, alpha: float = 1.0, beta: float = 1.0, way: bytes = b"T") -> None:
    """C <- alpha A^T A + beta C, on and above the diagonal; with ``way`` N it is A A^T."""
    inner = a.shape[0] if way == b"T" else a.shape[1]
    _call("dsyrk", b"U", way, len(c), inner, ctypes.c_double(alpha), a, ctypes.c_double(beta), c)


def times_factor_(b: Array, u: Array) -> None:
    """B <- U^T B, for U upper triangular."""
    _call("dtrmm", b"L", b"U", b"T", b"N", *b.shape, ctypes.c_double(1.0), u, b)


def solve_factor_(b: Array, u: Array, way: bytes) -> None:
    """B <- U^-1 B, or with ``way`` T: U^-T B; for U upper triangular."""
    _call("dtrsm", b"L", b"U", way, b"N", *b.shape, ctypes.c_double(1.0), u, b)


def cholesky_(a: Array) -> bool:
    """A <- U with U^T U = A, on and above the diagonal; return whether A is positive definite."""
    info = ctypes.c_int()
    _call("dpotrf", b"U", len(a), a, info)
    return info.value == 0


def inverse_(u: Array) -> None:
    """U <- (U^T U)^-1, on and above the diagonal, for U upper triangular."""
    _call("dpotri", b"U", len(u), u, ctypes.c_int())


def pack_(packed: Array, u: Array) -> None:
    """Copy the triangle on and above the diagonal of U to ``packed``, column after column."""
    _call("dtrttp", b"U", len(u), u, packed, ctypes.c_int())


def unpack_(u: Array, packed: Array) -> None:
    """Undo :func:`pack_`."""
    _call("dtpttr", b"U", len(u), packed, u, ctypes.c_int())


def fold_in_(u: Array, x: Array, t: Array) -> None:
    """U <- the triangular factor of [U; X]; X becomes the reflectors and T (block x columns) their block factors."""
    n, d = x.shape
    _call("dtpqrt", n, d, 0, len(t), u, x, t, np.empty(len(t) * d), ctypes.c_int())


def reflect_(a: Array, b: Array, v: Array, t: Array) -> None:
    """[A; B] <- Q^T [A; B], for the reflectors V and their block factors T that :func:`fold_in_` left."""
    n, d = b.shape
    k = v.shape[1]
    work = np.empty(len(t) * d)
    _call("dtpmqrt", b"L", b"T", n, d, k, 0, len(t), v, t, a, b, work, ctypes.c_int())
