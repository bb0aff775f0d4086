"""Transform coding: the error it promises, the same floats whatever the BLAS, and no trust in what a file says."""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from dsal.data.features.coding import _coded, _decoded, decode, encode
from dsal.errors import InputError

ROWS, WIDTH = 500, 40


def correlated(rows: int = ROWS) -> NDArray[np.float32]:
    """Features like those of blocks: variances from 100 down to 1e-4 along some axes, a few rows far out."""
    random = np.random.default_rng(0)
    turn, _ = np.linalg.qr(random.normal(size=(WIDTH, WIDTH)))
    x = random.normal(size=(rows, WIDTH)) * np.geomspace(10, 0.01, WIDTH) @ turn
    x[:3] *= 8
    return x.astype(np.float32)


@pytest.fixture
def arrays() -> dict[str, NDArray[Any]]:
    return {name: array.copy() for name, array in encode(correlated(), correlated(), 0.05).items()}


@pytest.mark.parametrize("step", [0.02, 0.1, 1.0])
def test_the_error_is_that_of_rounding_in_every_direction(step: float) -> None:
    x = correlated()
    back = decode(encode(x, x, step), ROWS)
    assert back.dtype == np.float32
    assert back.shape == x.shape
    error = (x - back).astype(np.float64)
    assert 0.5 * step < np.sqrt(12 * np.mean(error**2)) < 1.05 * step  # less where small axes are rounded to 0
    assert np.sqrt(12 * np.linalg.eigvalsh(error.T @ error / ROWS)).max() < 1.5 * step


def test_coded_rows_are_small() -> None:
    x = correlated(5000)
    bits = 8 * sum(array.nbytes for array in encode(x, x, 0.1).values()) / x.size
    variances = np.geomspace(10, 0.01, WIDTH) ** 2
    ideal = np.maximum(0.5 * np.log2(2 * np.pi * np.e * variances / 0.1**2), 0).mean()  # entropy of rounded Gaussians
    assert bits < ideal + 0.35  # tables of codes and the axes are among them, and small variances take a little


def test_products_are_exact_integers(arrays: dict[str, NDArray[Any]]) -> None:
    """In float64 and in any order of the terms the sums are the same, so they are on any machine."""
    columns, codes = arrays["columns"], memoryview(arrays["codes"])
    parts, at = [], 0
    for number, fields in enumerate(columns.tolist()):
        size = sum(fields[3:])
        parts.append(_decoded(fields, codes[at : at + size], ROWS if number else WIDTH**2).astype(np.int64))
        at += size
    axes, q = parts[0].reshape(WIDTH, WIDTH), np.stack(parts[1:], axis=1)
    exact = q @ axes
    assert np.abs(exact).max() > 2**18  # so float32 is put to the test
    assert np.abs(q).astype(np.int64).max() > 1000
    assert np.array_equal(decode(arrays, ROWS), exact.astype(np.float32) * arrays["unit"])
    assert np.array_equal(exact.astype(np.float32).astype(np.int64), exact)


@given(
    st.lists(st.integers(-(2**15), 2**15 - 256), min_size=1, max_size=60)
    | st.lists(st.integers(-2, 2), min_size=1, max_size=60)
    | st.lists(st.integers(-130, 130), min_size=1, max_size=60)
)
def test_any_column_comes_back(values: list[int]) -> None:
    fields, data = _coded(np.array(values, dtype=np.float64))
    assert _decoded(list(fields), memoryview(data), len(values)).tolist() == values


def test_steps_that_cannot_be() -> None:
    x = correlated()
    for step in (0.0, -1.0, float("nan")):
        with pytest.raises(InputError, match="positive"):
            encode(x, x, step)
    with pytest.raises(InputError, match="too small"):
        encode(x, x, 1e-4)


@pytest.mark.parametrize("rows", [0, 1, ROWS - 1, ROWS + 1, 10**12])
def test_another_number_of_rows_is_refused(arrays: dict[str, NDArray[Any]], rows: int) -> None:
    with pytest.raises(ValueError, match=f"exactly {rows} numbers"):
        decode(arrays, rows)


@pytest.mark.parametrize(
    ("place", "value", "message"),
    [
        ((3, 0), -40_000, "16 bits"),
        ((3, 0), 32_760, "16 bits"),
        ((3, 1), 1, "impossible"),
        ((3, 1), 257, "impossible"),
        ((3, 2), -1, "impossible"),
        ((3, 2), 9, "impossible"),
        ((3, 3), -1, "impossible"),
        ((3, 3), 2**31 - 1, "bytes"),
    ],
)
def test_impossible_fields_are_refused(
    arrays: dict[str, NDArray[Any]], place: tuple[int, int], value: int, message: str
) -> None:
    arrays["columns"][place] = value
    with pytest.raises(ValueError, match=message):
        decode(arrays, ROWS)


def test_arrays_that_do_not_fit_are_refused(arrays: dict[str, NDArray[Any]]) -> None:
    wrong: dict[str, list[NDArray[Any]]] = {
        "columns": [arrays["columns"].astype(np.int64), arrays["columns"][:, :4], arrays["columns"][:1]],
        "codes": [arrays["codes"][:-1], arrays["codes"].astype(np.int8), arrays["codes"][None]],
        "unit": [np.array([np.nan], np.float32), np.ones(2, np.float32), np.ones(1)],
    }
    for name, values in wrong.items():
        for value in values:
            with pytest.raises(ValueError, match="coded features"):
                decode({**arrays, name: value}, ROWS)
    with pytest.raises(KeyError):
        decode({"codes": arrays["codes"]}, ROWS)


def test_damaged_bytes_are_refused_or_change_nothing_but_values(arrays: dict[str, NDArray[Any]]) -> None:
    """zlib ends each stream with a checksum, so next to no damage gets through."""
    random = np.random.default_rng(1)
    for at in random.integers(0, len(arrays["codes"]), 50):
        codes = arrays["codes"].copy()
        codes[at] ^= 1 << random.integers(8)
        with pytest.raises(ValueError, match="coded features"):
            decode({**arrays, "codes": codes}, ROWS)


def test_digits_beyond_the_radix_and_rows_too_long_are_refused() -> None:
    stream = zlib.compress(bytes([255] * 4))
    fields = [-1, 3, 0, len(stream), 0]  # five ternary digits a byte: at most 242
    with pytest.raises(ValueError, match="beyond its radix"):
        _decoded(fields, memoryview(stream), 20)
    axis, row = (_coded(np.array(values, dtype=np.float64)) for values in ([2**13], [2**12, 1]))
    coded = {
        "columns": np.array([axis[0], row[0]], dtype=np.int32),
        "codes": np.frombuffer(axis[1] + row[1], dtype=np.uint8),
        "unit": np.ones(1, np.float32),
    }
    with pytest.raises(ValueError, match="multiplied exactly"):
        decode(coded, 2)
