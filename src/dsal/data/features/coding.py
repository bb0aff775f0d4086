"""Transform coding: rows of correlated features in a few bits per number, decoded to the same floats on every machine.

Rows x (n, d) are expressed in the principal axes a_1 ... a_d of some of them, and rounded to multiples of one step:

    q_i = round(a_i . x / step),    x' = step * sum_i q_i a_i

One step for all axes means the same error, about step / sqrt(12), in every direction: the least total error for a
given number of bits. The features are correlated, so most q_i are small; each column of them is compressed separately.

**Same on every machine.** The axes are integers, A = round(2^10 a), and q is computed with the inverse of A / 2^10, so
that rounding A costs nothing. |q| |A_j| < 2^24 holds for every row q and column A_j. By Cauchy-Schwarz no partial sum
of a product q . A_j is larger, so single precision holds all of them exactly, in whatever order a BLAS adds them.

**A column** of integers (one q_i of all rows; all of A) is stored as its lowest value and each entry's offset from it,
written as ``high * 2^shift + low``. Low bits are as good as random and are packed as they are; the high parts take at
most 256 different values (``radix``) and are coded by frequency (zlib, Huffman codes only). As many digits as fit
share a byte, because no Huffman code is shorter than one bit.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dsal.errors import InputError

_FIELDS = 5  # of a column: lowest, radix, shift, bytes of the high parts, bytes of the low parts
_EXACT = 2**24  # up to here float32 holds every integer
_SCALE = 2**10  # of the axes: large enough for an inverse, small enough for short codes
_CHUNK = 4096  # rows transformed at a time


def encode(x: NDArray[np.float32], sample: NDArray[np.float32], step: float) -> dict[str, NDArray[Any]]:
    """Encode rows.

    Args:
        x: (n, d).
        sample: (m, d), rows of mean zero whose principal axes are used.
        step: quantisation step, in the units of x.

    Returns:
        ``columns`` int32 (1 + d, 5), one row for A and one for each q_i; ``codes`` uint8, their concatenated
        bytes; ``unit`` float32 (1,), step / 2^10.

    Raises:
        InputError: the step is not positive, or too small for rows of this length.
    """
    if not step > 0:
        raise InputError(f"the step must be a positive number, got {step}")
    axes = np.linalg.eigh(sample.T.astype(np.float64) @ sample)[1].T[::-1]  # (d, d), largest variance first
    axes = np.round(_SCALE * axes)
    back = np.linalg.inv(axes) * (_SCALE / step)
    q = np.concatenate([np.round(x[some].astype(np.float64) @ back) for some in _chunks(len(x))])  # (n, d)
    if np.max(np.abs(q)) >= 2**15 or not _exact(np.sum(q**2, axis=1), axes):
        raise InputError(f"a step of {step} is too small for rows of length {np.linalg.norm(x, axis=1).max():.3g}")
    coded = [_coded(axes.ravel()), *(_coded(column) for column in q.T)]
    return {
        "columns": np.array([fields for fields, _ in coded], dtype=np.int32),
        "codes": np.frombuffer(b"".join(data for _, data in coded), dtype=np.uint8),
        "unit": np.array([step / _SCALE], dtype=np.float32),
    }


def decode(arrays: Mapping[str, NDArray[Any]], rows: int) -> NDArray[np.float32]:
    """Decode the output of :func:`encode` into rows, float32 (rows, d).

    Memory grows only with what has been decoded: a file that claims more rows than it holds is refused early.

    Raises:
        KeyError: an array is missing.
        ValueError: the arrays are inconsistent, or do not hold this number of rows.
    """
    columns, codes, unit = arrays["columns"], arrays["codes"], arrays["unit"]
    _check(columns, codes, unit)
    width, data, at = len(columns) - 1, memoryview(codes.tobytes()), 0
    decoded = []
    for number, fields in enumerate(columns.tolist()):
        size = sum(fields[3:])
        decoded.append(_decoded(fields, data[at : at + size], rows if number else width**2))
        at += size
    axes, q = decoded[0].reshape(width, width), decoded[1:]
    squares = np.zeros(rows, dtype=np.int64)
    for column in q:
        squares += column.astype(np.int64) ** 2
    if not _exact(squares, axes):
        raise ValueError("rows and axes are too long to be multiplied exactly")
    x, factor = np.empty((rows, width), dtype=np.float32), axes.astype(np.float32)
    for some in _chunks(rows):
        np.matmul(np.stack([column[some] for column in q], axis=1).astype(np.float32), factor, out=x[some])
    x *= unit[0]
    return x


def _exact(squares: NDArray[Any], axes: NDArray[Any]) -> bool:
    """Return whether float32 holds all products of rows, given as squared lengths (n,), with columns of the axes."""
    return float(np.max(squares, initial=0)) * float(np.max(np.sum(axes.astype(np.float64) ** 2, axis=0))) < _EXACT**2


def _check(columns: NDArray[Any], codes: NDArray[Any], unit: NDArray[Any]) -> None:
    """Raise ValueError unless the arrays are of the right types, and every field of a column is possible."""
    expected = ((columns, np.int32, (max(len(columns), 2), _FIELDS)), (codes, np.uint8, (codes.size,)))
    for array, kind, shape in (*expected, (unit, np.float32, (1,))):
        if array.dtype != kind or array.shape != shape:
            raise ValueError(
                f"coded features must be {kind.__name__} of shape {shape}, got {array.dtype} of shape {array.shape}"
            )
    lowest, radix, shift, *sizes = columns.T.astype(np.int64)
    if radix.min() < 2 or radix.max() > 256 or shift.min() < 0 or shift.max() > 8 or np.min(sizes) < 0:
        raise ValueError("a column of coded features has an impossible radix, shift or size")
    if lowest.min() < -(2**15) or np.max(lowest + (radix << shift)) > 2**15:
        raise ValueError("a column of coded features does not fit into 16 bits")
    if np.sum(sizes) != len(codes) or not np.isfinite(unit[0]):
        raise ValueError(f"coded features should take {np.sum(sizes)} bytes, but there are {len(codes)}")


def _coded(column: NDArray[np.float64]) -> tuple[tuple[int, ...], bytes]:
    """Return the fields and bytes of a column of integers (n,)."""
    lowest = int(column.min())
    digits = column.astype(np.int32) - lowest
    shift = max(int(digits.max()).bit_length() - 8, 0)
    high, low = digits >> shift, digits & ((1 << shift) - 1)
    radix = max(int(high.max()) + 1, 2)
    highs, lows = _deflated(_packed(high, radix)), _deflated(_packed(low, 1 << shift)) if shift else b""
    return (lowest, radix, shift, len(highs), len(lows)), highs + lows


def _decoded(fields: list[int], data: memoryview, count: int) -> NDArray[np.int16]:
    lowest, radix, shift, highs, _ = fields
    values = _unpacked(data[:highs], radix, count) << shift
    if shift:
        values |= _unpacked(data[highs:], 1 << shift, count)
    return (values + lowest).astype(np.int16)


def _chunks(rows: int) -> Iterator[slice]:
    return (slice(start, min(start + _CHUNK, rows)) for start in range(0, rows, _CHUNK))


def _packed(digits: NDArray[np.int32], radix: int) -> bytes:
    """Pack digits of a radix, as many per byte as fit, the first one lowest."""
    places = _places(radix)
    padded = np.pad(digits, (0, -len(digits) % places)).reshape(-1, places)
    return (padded @ radix ** np.arange(places)).astype(np.uint8).tobytes()


def _unpacked(data: memoryview, radix: int, count: int) -> NDArray[np.int32]:
    """Decompress and unpack digits (count,)."""
    places = _places(radix)
    size = -(-count // places)
    inflater = zlib.decompressobj()
    try:
        packed = np.frombuffer(inflater.decompress(data, size + 1), dtype=np.uint8)
    except zlib.error as error:
        raise ValueError(f"a column of coded features cannot be decompressed: {error}") from error
    if len(packed) != size or not inflater.eof or inflater.unused_data:
        raise ValueError(f"a column of coded features does not hold exactly {count} numbers")
    if size and packed.max() >= radix**places:
        raise ValueError("a column of coded features holds a digit beyond its radix")
    table = (np.arange(256)[:, None] // radix ** np.arange(places) % radix).astype(np.int32)  # (256, places)
    return table[packed].reshape(-1)[:count]


def _places(radix: int) -> int:
    """Return how many digits of a radix fit into a byte."""
    return max(count for count in range(1, 9) if radix**count <= 256)


def _deflated(data: bytes) -> bytes:
    compressor = zlib.compressobj(level=9, memLevel=9, strategy=zlib.Z_HUFFMAN_ONLY)
    return compressor.compress(data) + compressor.flush()
