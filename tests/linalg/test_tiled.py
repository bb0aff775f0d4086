"""Tiles give what NumPy gives, the same bits from any number of threads, and leave the other triangle alone."""

from __future__ import annotations

import os
import threading
import time

import numpy as np
import pytest
from tests.oracle import Array
from threadpoolctl import threadpool_info, threadpool_limits

from dsal.linalg import lapack, tiled
from dsal.linalg.threads import Workers, workers

RANDOM = np.random.default_rng(0)
SHAPES = [(1, 1), (5, 3), (300, 100), (513, 40), (600, 700)]  # d_B and rows: one tile, a few, and what is left over


class Square:
    """A symmetric matrix, its factor, and rows; squares of them hold noise below the diagonal."""

    def __init__(self, d: int, n: int) -> None:
        self.x = np.asfortranarray(RANDOM.standard_normal((n, d)))
        rows = RANDOM.standard_normal((2 * d, d))
        self.gram = rows.T @ rows + np.eye(d)
        self.factor = np.linalg.cholesky(self.gram).T
        self.noise = np.tril(RANDOM.standard_normal((d, d)), -1)

    def square(self, matrix: Array) -> Array:
        return np.asfortranarray(np.triu(matrix) + self.noise)

    def check(self, square: Array, wanted: Array) -> None:
        np.testing.assert_allclose(np.triu(square), np.triu(wanted), rtol=1e-9, atol=1e-9)
        assert (np.tril(square, -1) == self.noise).all()


@pytest.mark.parametrize(("d", "n"), SHAPES)
def test_what_numpy_gives(d: int, n: int) -> None:
    s = Square(d, n)
    for x in (s.x, np.ascontiguousarray(s.x)):
        for sign in (1.0, -1.0):
            gram = s.square(s.gram)
            tiled.add_rows_(gram, x, sign)
            s.check(gram, s.gram + sign * s.x.T @ s.x)
    square = s.square(s.gram)
    assert tiled.factor_(square)
    s.check(square, s.factor)
    tiled.unfactor_(square)
    s.check(square, s.gram)
    tiled.add_factor_(square, s.square(s.factor))
    s.check(square, 2 * s.gram)
    factor = s.square(s.factor)
    tiled.fold_in_(factor, s.x.copy(order="F"))
    tiled.unfactor_(factor)
    s.check(factor, s.gram + s.x.T @ s.x)
    b = np.asfortranarray(RANDOM.standard_normal((d, 70)))
    solved = b.copy(order="F")
    tiled.solve_(s.square(s.factor), solved)
    np.testing.assert_allclose(s.gram @ solved, b, rtol=1e-7, atol=1e-7)
    assert not tiled.factor_(s.square(-s.gram))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_products_of_any_layout(dtype: type) -> None:
    a, b = RANDOM.standard_normal((300, 270)).astype(dtype), RANDOM.standard_normal((270, 301)).astype(dtype)
    strided = RANDOM.standard_normal((600, 540)).astype(dtype)[::2, ::2]
    for left in (a, np.asfortranarray(a), strided):
        for right in (b, np.asfortranarray(b), b[:, :1], b[:, :0]):
            c = tiled.product(left, right)
            assert c.dtype == dtype
            np.testing.assert_allclose(c, left @ right, rtol=1e-3 if dtype == np.float32 else 1e-9, atol=1e-3)
    assert (tiled.product(a[:, :0], b[:0]) == 0).all()


def test_the_same_bits_from_any_number_of_threads() -> None:
    """Before, BLAS cut the work by the number of threads, and the last bits changed with it."""
    s = Square(600, 700)

    def everything() -> list[Array]:
        square, solved = s.square(s.gram), np.asfortranarray(s.x[:150].T)
        tiled.add_rows_(square, s.x, 1.0)
        tiled.factor_(square)
        tiled.fold_in_(square, s.x.copy(order="F"))
        tiled.solve_(square, solved)
        folded = square.copy()
        tiled.unfactor_(square)
        return [folded, square, solved, tiled.product(s.x, s.gram)]

    found = []
    for threads in (1, 2, 3):
        with threadpool_limits(threads, user_api="blas"):
            found.append(everything())
    for other in found[1:]:
        for one, two in zip(found[0], other, strict=True):
            assert np.array_equal(one, two)


def test_memory_that_is_not_by_columns_is_refused() -> None:
    rows = np.zeros((4, 3))
    with pytest.raises(ValueError, match="columns must be contiguous"):
        lapack.cholesky_(rows)


def test_blas_has_one_thread_meanwhile_and_its_own_number_afterwards() -> None:
    def threads() -> set[int]:
        return {library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"}

    with threadpool_limits(3, user_api="blas"):
        with workers() as pool, workers() as same:
            assert pool is same
            assert pool.threads == 3
            assert threads() == {1}
        assert threads() == {3}


def test_an_error_waits_for_the_tasks_that_run() -> None:
    """Whoever handles it, even a Ctrl-C, may put back what tasks have changed."""
    done = []

    def slow() -> None:
        time.sleep(0.2)
        done.append(True)

    def failing() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Workers(2).run([slow, failing])
    assert done == [True]


def test_tasks_begin_in_order_and_may_wait_for_earlier_ones() -> None:
    for count in (1, 2):
        event, heard = threading.Event(), []
        Workers(count).run([event.set, *[lambda event=event, heard=heard: heard.append(event.wait(10))] * 5])
        assert heard == [True] * 5


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_forked_process_has_threads_of_its_own() -> None:
    a = np.asfortranarray(RANDOM.standard_normal((600, 600)))
    with threadpool_limits(2, user_api="blas"):
        tiled.product(a, a)
        child = os.fork()
        if child == 0:
            tiled.product(a, a)
            os._exit(0)
        for _ in range(200):
            ended, status = os.waitpid(child, os.WNOHANG)
            if ended:
                break
            time.sleep(0.05)
        else:
            os.kill(child, 9)
            os.waitpid(child, 0)
            pytest.fail("the child hangs")
    assert status == 0
