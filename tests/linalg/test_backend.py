"""Both backends against NumPy; and what "in place" means."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
import torch
from tests.oracle import Array
from torch import Tensor

from dsal.errors import InputError
from dsal.linalg.backend import Backend, Lapack, LinAlgError, Torch, backend_for

BACKENDS = [Lapack(), Torch(torch.device("cpu"))]
SIZES = [1, 5, 300]  # 300 is more than one panel, and no multiple of one


@pytest.fixture(params=BACKENDS, ids=lambda backend: type(backend).__name__)
def backend(request: pytest.FixtureRequest) -> Backend:
    return request.param  # type: ignore[no-any-return]


def gram_matrix(d: int, seed: int = 0) -> Array:
    x = np.random.default_rng(seed).standard_normal((d + 3, d))
    return x.T @ x + np.eye(d)


def square(backend: Backend, matrix: Array) -> Tensor:
    result = backend.square(len(matrix))
    result.copy_(torch.from_numpy(matrix))
    return result


def triangle(matrix: Tensor) -> Array:
    return np.triu(matrix.numpy())


def gram_of(factor: Tensor) -> Array:
    return triangle(factor).T @ triangle(factor)


@pytest.mark.parametrize("d", SIZES)
def test_factor_and_unfactor(backend: Backend, d: int) -> None:
    gram = gram_matrix(d)
    state = square(backend, gram)
    backend.factor_(state)
    np.testing.assert_allclose(triangle(state), np.linalg.cholesky(gram).T, rtol=1e-12, atol=1e-12)
    backend.unfactor_(state)
    np.testing.assert_allclose(triangle(state), np.triu(gram), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("d", SIZES)
@pytest.mark.parametrize("n", [1, 3, 400])
def test_rows_join_the_gram_matrix_and_the_factor(backend: Backend, d: int, n: int) -> None:
    gram, x = gram_matrix(d), np.random.default_rng(1).standard_normal((n, d))
    layouts = [torch.tensor(x), torch.tensor(x.T.copy()).T, torch.tensor(np.repeat(x, 2, axis=1))[:, ::2]]
    for rows in layouts:
        state = square(backend, gram)
        backend.add_rows_to_gram_(state, rows.clone(memory_format=torch.preserve_format))
        np.testing.assert_allclose(triangle(state), np.triu(gram + x.T @ x), rtol=1e-12, atol=1e-12)
        backend.add_rows_to_gram_(state, rows, sign=-1.0)
        np.testing.assert_allclose(triangle(state), np.triu(gram), rtol=1e-10, atol=1e-10)
        backend.factor_(state)
        backend.add_rows_to_factor_(state, rows.clone(memory_format=torch.preserve_format))
        np.testing.assert_allclose(gram_of(state), gram + x.T @ x, rtol=1e-11, atol=1e-10)


@pytest.mark.parametrize("d", SIZES)
def test_factors_add(backend: Backend, d: int) -> None:
    ours, theirs = square(backend, gram_matrix(d, 0)), square(backend, gram_matrix(d, 1))
    backend.factor_(theirs)
    before = theirs.clone()
    backend.add_factor_to_gram_(ours, theirs)
    np.testing.assert_allclose(triangle(ours), np.triu(gram_matrix(d, 0) + gram_matrix(d, 1)), rtol=1e-12, atol=1e-12)
    assert torch.equal(theirs, before)


@pytest.mark.parametrize("d", SIZES)
def test_solve(backend: Backend, d: int) -> None:
    gram, b = gram_matrix(d), torch.tensor(np.random.default_rng(2).standard_normal((d, 7)))
    state = square(backend, gram)
    backend.factor_(state)
    before = b.clone()
    np.testing.assert_allclose(backend.solve(state, b), np.linalg.solve(gram, b.numpy()), rtol=1e-9, atol=1e-12)
    assert torch.equal(b, before)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_product_of_any_layout(backend: Backend, dtype: torch.dtype) -> None:
    a, b = torch.randn(6, 8, dtype=dtype), torch.randn(8, 10, dtype=dtype)
    expected = a.double().numpy() @ b.double().numpy()
    for left in (a, a.T.contiguous().T, a.repeat_interleave(2, 1)[:, ::2]):
        for right in (b, b.T.contiguous().T, b.repeat_interleave(2, 1)[:, ::2]):
            product = backend.product(left, right)
            assert product.dtype == dtype
            np.testing.assert_allclose(product, expected, atol=1e-12 if dtype == torch.float64 else 1e-5)


@pytest.mark.parametrize("bad", [-1.0, np.nan, np.inf])
def test_what_has_no_factor_is_refused(backend: Backend, bad: float) -> None:
    gram = gram_matrix(5)
    gram[2, 2] = bad
    with pytest.raises(LinAlgError):
        backend.factor_(square(backend, gram))


@pytest.mark.parametrize("d", [2, 60])
def test_condition_is_estimated_within_a_factor_of_three(backend: Backend, d: int) -> None:
    gram = gram_matrix(d) * np.outer(scale := np.logspace(0, 3, d), scale)
    state = square(backend, gram)
    backend.factor_(state)
    true = np.linalg.cond(gram, 1)
    assert true / 3 <= backend.condition(state) <= true * 1.01


@pytest.mark.parametrize("d", SIZES)
def test_restore_undoes_everything_bit_for_bit(backend: Backend, d: int) -> None:
    state = square(backend, gram_matrix(d))
    backend.factor_(state)
    before = triangle(state).tobytes()
    kept = backend.backup_(state)
    assert triangle(state).tobytes() == before
    backend.add_rows_to_factor_(state, torch.randn(4, d, dtype=torch.float64))
    backend.unfactor_(state)
    backend.add_rows_to_gram_(state, torch.randn(4, d, dtype=torch.float64))
    backend.add_factor_to_gram_(state, square(backend, np.triu(gram_matrix(d))))
    backend.factor_(state)
    assert triangle(state).tobytes() != before
    backend.restore_(state, kept)
    assert triangle(state).tobytes() == before


@pytest.mark.parametrize("d", SIZES)
def test_pack_keeps_one_triangle_column_by_column(backend: Backend, d: int) -> None:
    gram = gram_matrix(d)
    packed = backend.pack(square(backend, gram))
    np.testing.assert_array_equal(packed, np.concatenate([gram[: j + 1, j] for j in range(d)]))
    assert triangle(backend.unpack(packed, d)).tobytes() == np.triu(gram).tobytes()


def test_lapack_copies_no_square() -> None:
    """Everything that changes a square does so in place: no allocation comes near the size of a square."""
    d = 2048
    backend = Lapack()
    state, other = square(backend, np.eye(d)), square(backend, np.eye(d))
    address = state.data_ptr()
    backend.factor_(other)
    tracemalloc.start()
    kept = backend.backup_(state)
    backend.add_rows_to_gram_(state, torch.randn(32, d, dtype=torch.float64))
    backend.factor_(state)
    backend.add_rows_to_factor_(state, torch.randn(32, d, dtype=torch.float64))
    backend.solve(state, torch.randn(d, 4, dtype=torch.float64))
    backend.condition(state)
    backend.unfactor_(state)
    backend.add_factor_to_gram_(state, other)
    backend.restore_(state, kept)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert state.data_ptr() == address
    assert 0 < peak < 0.4 * 8 * d * d  # two panels of 256 columns at a time


def test_devices_by_name() -> None:
    assert isinstance(backend_for("cpu"), Lapack)
    assert isinstance(backend_for(torch.device("cpu")), Lapack)
    with pytest.raises(InputError, match="'tpu9' cannot be used"):
        backend_for("tpu9")
    with pytest.raises(InputError, match="cannot be used"):
        backend_for(3.5)  # type: ignore[arg-type]


def test_rows_that_join_one_by_one_do_not_drift() -> None:
    """A badly conditioned factor (1e10), and rows that matter little or much: as good as one factorisation."""
    d, backend = 150, Lapack()
    scale = np.logspace(0, -5, d)
    x = np.random.default_rng(0).standard_normal((400, d)) * scale
    gram = x[:100].T @ x[:100] + 1e-10 * np.eye(d)
    state = square(backend, gram)
    backend.factor_(state)
    for row in x[100:]:
        backend.add_rows_to_factor_(state, torch.tensor(row[None]))
    expected = gram + x[100:].T @ x[100:]
    error = np.abs(gram_of(state) - expected) / np.sqrt(np.outer(np.diag(expected), np.diag(expected)))
    assert error.max() < 1e-12


def test_one_right_hand_side() -> None:
    state = square(Lapack(), gram_matrix(300))
    Lapack().factor_(state)
    b = torch.randn(300, 2, dtype=torch.float64)
    torch.testing.assert_close(Lapack().solve(state, b[:, :1]), Lapack().solve(state, b)[:, :1], rtol=1e-9, atol=1e-12)
