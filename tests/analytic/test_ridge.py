"""Theorem 1: however the rows come, the weights are those of one joint solve."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.oracle import Array, Joint, joint_weights
from torch import Tensor

from dsal.analytic import ridge as ridge_module
from dsal.analytic.ridge import Ridge, Route, bytes_needed, digits_lost
from dsal.analytic.ridge_state import pack_ridge, rollback, unpack_ridge
from dsal.errors import InputError, MemoryNeededError, PrecisionWarning
from dsal.linalg.backend import Backend, Lapack, Torch

ROUTES: list[Route] = ["cholesky", "qr"]


def blocks_of(x: Array, y: Array, size: int = 10**9) -> Iterator[tuple[Tensor, Tensor]]:
    """Copies of the rows in blocks, as :meth:`Ridge.update` takes them."""
    for i in range(0, len(x), size):
        yield torch.tensor(x[i : i + size]), torch.tensor(y[i : i + size])


def learned(x: Array, y: Array, phases: Iterable[slice | Array], route: Route | None, gamma: float = 0.1) -> Ridge:
    ridge = Ridge(x.shape[1], gamma)
    ridge.grow(y.shape[1])
    for phase in phases:
        ridge.update(blocks_of(x[phase], y[phase], size=333), rows=len(x[phase]), route=route)
    return ridge


def random_rows(n: int, d: int, c: int, seed: int = 0) -> tuple[Array, Array]:
    random = np.random.default_rng(seed)
    return random.standard_normal((n, d)), random.standard_normal((n, c))


def same_bits(a: Ridge, before: dict[str, Array]) -> bool:
    now = pack_ridge(a)
    return now.keys() == before.keys() and all(now[key].tobytes() == before[key].tobytes() for key in now)


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize("order", ["by class", "shuffled"])
def test_any_split_into_phases_is_joint_training_on_real_features(joint: Joint, route: Route, order: str) -> None:
    shuffled = np.random.default_rng(0).permutation(len(joint.x))
    rows = np.arange(len(joint.x)) if order == "by class" else shuffled
    phases = np.split(rows, [1300, 1560, 1561, 1563, 2080])
    ridge = learned(joint.x, joint.y, phases, route, joint.gamma)
    difference = ridge.weights().numpy() - joint.weights
    assert np.linalg.norm(difference) <= 1e-8 * np.linalg.norm(joint.weights)
    assert np.abs(joint.new @ difference).max() <= 1e-9


def test_five_hundred_one_class_phases_do_not_drift(joint: Joint) -> None:
    x = joint.x[:2500, :1024]
    y = np.eye(500)[np.arange(2500) // 5]
    ridge = Ridge(1024, joint.gamma)
    for k in range(500):
        ridge.grow(1)
        phase = slice(5 * k, 5 * k + 5)
        ridge.update(blocks_of(x[phase], y[phase, k : k + 1]), rows=5, columns=torch.tensor([k]))
    expected = joint_weights(x, y, joint.gamma)
    difference = ridge.weights().numpy() - expected
    assert np.linalg.norm(difference) <= 1e-7 * np.linalg.norm(expected)
    assert np.abs(joint.new[:, :1024] @ difference).max() <= 1e-7


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_any_split_any_order_any_route(data: st.DataObject) -> None:
    n, d, c = data.draw(st.integers(1, 40)), data.draw(st.integers(1, 12)), data.draw(st.integers(1, 4))
    gamma = data.draw(st.sampled_from([1e-2, 0.1, 10.0]))
    x, y = random_rows(n, d, c, seed=data.draw(st.integers(0, 9)))
    order = np.array(data.draw(st.permutations(range(n))))
    cuts = sorted(data.draw(st.lists(st.integers(1, n), max_size=5, unique=True)))
    ridge = Ridge(d, gamma)
    ridge.grow(c)
    for phase in np.split(order, cuts):
        route = data.draw(st.sampled_from([*ROUTES, None]))
        size = data.draw(st.integers(1, n))
        ridge.update(blocks_of(x[phase], y[phase], size), rows=len(phase), route=route)
    np.testing.assert_allclose(ridge.weights(), joint_weights(x, y, gamma), rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize("backend", [Lapack(), Torch(torch.device("cpu"))], ids=["Lapack", "Torch"])
@pytest.mark.parametrize("gammas", [(0.1, 0.1), (0.1, 3.0)])
def test_merged_is_pooled(joint: Joint, backend: Backend, gammas: tuple[float, float]) -> None:
    x, y = joint.x[:, :300], joint.y
    ours, theirs = Ridge(300, gammas[0], backend), Ridge(300, gammas[1], backend)
    ours.grow(60)
    theirs.grow(70)  # classes 30 to 99, in reverse
    half = y[:, 60:].sum(1) > 0
    ours.update(blocks_of(x[~half], y[~half, :60]), rows=int((~half).sum()))
    theirs.update(blocks_of(x[half], y[half][:, np.arange(99, 29, -1)]), rows=int(half.sum()))
    before = pack_ridge(theirs)
    ours.grow(40)
    ours.merge(theirs, torch.arange(99, 29, -1))
    assert same_bits(theirs, before)
    expected = joint_weights(x, y, gammas[0])
    difference = ours.weights().numpy() - expected
    assert np.linalg.norm(difference) <= 1e-8 * np.linalg.norm(expected)


@pytest.mark.parametrize("backend", [Lapack(), Torch(torch.device("cpu"))], ids=["Lapack", "Torch"])
def test_subtracted_is_never_seen(joint: Joint, backend: Backend) -> None:
    x, y = joint.x[:, :500], joint.y
    ridge = Ridge(500, joint.gamma, backend)
    ridge.grow(100)
    ridge.update(blocks_of(x, y), rows=len(x))
    ridge.subtract(blocks_of(x[700:1900], y[700:1900], 100))
    left = np.r_[0:700, 1900:2600]
    expected = joint_weights(x[left], y[left], joint.gamma)
    assert np.linalg.norm(ridge.weights().numpy() - expected) <= 1e-8 * np.linalg.norm(expected)


def test_rows_never_learned_cannot_be_subtracted() -> None:
    x, y = random_rows(30, 50, 2)
    ridge = learned(x, y, [slice(None)], None)
    before = pack_ridge(ridge)
    with pytest.raises(InputError, match="never learned"), rollback([ridge]):
        ridge.subtract(blocks_of(*random_rows(1, 50, 2, seed=1)))
    assert same_bits(ridge, before)


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize("scale", [1.0, 1e2, 1e3, 1e5, 1e6, 1e7])
@pytest.mark.filterwarnings("ignore::dsal.errors.PrecisionWarning")
def test_far_larger_rows_are_forgotten_accurately_or_not_at_all(scale: float, route: Route) -> None:
    """Beside them float64 loses digits of the others: the error says so, and not that they were never learned."""
    x, y = random_rows(50, 100, 3)
    large, its_y = random_rows(10, 100, 3, seed=1)
    ridge = learned(x, y, [slice(None)], route)
    ridge.update(blocks_of(scale * large, its_y), rows=10, route="qr" if scale > 1e6 else route)
    before = pack_ridge(ridge)
    if scale <= 1e3:
        ridge.subtract(blocks_of(scale * large, its_y))
        expected = joint_weights(x, y, 0.1)
        assert np.linalg.norm(ridge.weights().numpy() - expected) <= 1e-5 * np.linalg.norm(expected)
        return
    with pytest.raises(InputError, match=r"times as large .* Learn again without them"), rollback([ridge]):
        ridge.subtract(blocks_of(scale * large, its_y))
    assert same_bits(ridge, before)


def test_digits_are_lost_beside_entries_that_were_far_larger() -> None:
    assert digits_lost(1e16, 1.0, 1.0)
    assert not digits_lost(1e16, 1e15, 1.0)  # large rows remain
    assert not digits_lost(1e16, 0.0, 1.0)  # nothing remains to compare with
    assert digits_lost(1e16, 0.005, 0.001)
    assert not digits_lost(100.0, 1.0, 0.0)
    assert digits_lost(101.0, 1.0, 0.0)
    limit = 1e-6 * 2.0**52  # rounding is a millionth of the smallest pivot
    assert not digits_lost(limit, 1.0, 1.0)
    assert digits_lost(1.001 * limit, 1.0, 1.0)


@pytest.mark.parametrize(
    ("gamma", "kept", "forgotten", "lost"),
    [
        (1e-3, [[300.0, 0.0]], 1e4, True),  # the smallest pivot, of the other column, has no digits left
        (1e-3, [[300.0, 0.0], [0.0, 1.0]], 1e4, False),
        (100.0, [], 1.5e6, True),
        (100.0, [], 5e5, False),
        (1e-3, [[3e3, 0.0]], 1e4, False),  # what remains is nearly as large
    ],
)
def test_what_remains_decides_whether_large_rows_can_be_forgotten(
    gamma: float, kept: list[list[float]], forgotten: float, lost: bool
) -> None:
    rows, large = np.array(kept).reshape(-1, 2), np.array([[forgotten, 0.0]])
    x = np.vstack([rows, large])
    ridge = learned(x, np.ones((len(x), 1)), [slice(None)], "cholesky", gamma)
    if lost:
        with pytest.raises(InputError, match="times as large"):
            ridge.subtract(blocks_of(large, np.ones((1, 1))))
    else:
        ridge.subtract(blocks_of(large, np.ones((1, 1))))
        np.testing.assert_allclose(ridge.weights(), joint_weights(rows, np.ones((len(rows), 1)), gamma), atol=1e-4)


@pytest.mark.parametrize(("scale", "warned"), [(0.6e6, False), (0.8e6, True)])
def test_the_warning_begins_at_a_condition_number_of_1e12(scale: float, warned: bool) -> None:
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        learned(np.array([[scale, 0.0]]), np.ones((1, 1)), [slice(None)], "cholesky", 1.0)  # 2 scale^2
    assert bool(told) == warned


def test_large_rows_that_were_never_learned_are_told_from_those_that_were() -> None:
    ridge = learned(*random_rows(50, 100, 3), [slice(None)], None)
    large, y = random_rows(1, 100, 3, seed=1)
    with pytest.raises(InputError, match="never learned"), rollback([ridge]):
        ridge.subtract(blocks_of(1e6 * large, y))


@pytest.mark.parametrize("route", ROUTES)
def test_too_small_a_gamma_is_told(route: Route) -> None:
    """More columns than rows: gamma alone bounds the condition number, and the error of the weights."""
    x, y = random_rows(100, 400, 3)
    for gamma, accuracy in ((1e-6, 1e-5), (1e-12, None)):
        stacked = np.vstack([x, np.sqrt(gamma) * np.eye(400)])
        expected = np.linalg.lstsq(stacked, np.vstack([y, np.zeros((400, 3))]), rcond=None)[0]
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            ridge = learned(x, y, [slice(None)], route, gamma)
        error = np.linalg.norm(ridge.weights().numpy() - expected) / np.linalg.norm(expected)
        if accuracy is not None:
            assert (error < accuracy, told) == (True, [])
        else:
            assert error > 0.01
            assert told[0].category is PrecisionWarning
            assert "raise gamma" in str(told[0].message)
            estimate = float(str(told[0].message).split("condition number of about ")[1].split()[0])
            assert ridge.condition() / 5 < estimate < 5 * ridge.condition()


def carrying(x: Array, y: Array) -> Ridge:
    """A ridge whose last phase had fewer rows than classes, so that it carries its weights."""
    ridge = learned(x, y, [slice(0, 39), slice(39, 40)], None)
    assert ridge.carried is not None
    return ridge


def test_weights_that_came_along_do_not_outlive_a_merge() -> None:
    x, y = random_rows(60, 20, 8)
    ridge = carrying(x[:40], y[:40])
    ridge.merge(learned(x[40:], y[40:], [slice(None)], None), torch.arange(8))
    np.testing.assert_allclose(ridge.weights(), joint_weights(x, y, 0.1), rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("block", [7, None])
def test_unmerged_is_never_merged(block: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    if block is not None:
        monkeypatch.setattr(ridge_module, "_BLOCK", block)  # several blocks of the other's factor
    x, y = random_rows(60, 20, 8)
    ours = learned(x, y, [slice(0, 59), slice(59, 60)], None)
    assert ours.carried is not None
    theirs = learned(x[40:], y[40:, ::-1].copy(), [slice(None)], None, gamma=3.0)
    ours.unmerge(theirs, torch.arange(7, -1, -1))
    np.testing.assert_allclose(ours.weights(), joint_weights(x[:40], y[:40], 0.1), rtol=1e-8, atol=1e-10)


def test_weights_that_came_along_do_not_outlive_a_subtraction() -> None:
    x, y = random_rows(60, 20, 8)
    ridge = carrying(x[:40], y[:40])
    ridge.subtract(blocks_of(x[:15], y[:15]))
    np.testing.assert_allclose(ridge.weights(), joint_weights(x[15:40], y[15:40], 0.1), rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize("backend", [Lapack(), Torch(torch.device("cpu"))], ids=["Lapack", "Torch"])
@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
@pytest.mark.parametrize("fresh", [True, False])
def test_an_update_that_fails_midway_leaves_every_bit(
    route: Route, backend: Backend, error: type[BaseException], fresh: bool
) -> None:
    x, y = random_rows(40, 9, 3)
    ridge = Ridge(9, 0.5, backend)
    ridge.grow(3)
    if not fresh:
        ridge.update(blocks_of(x, y), rows=40)
    before, weights = pack_ridge(ridge), ridge.weights().clone()

    def failing() -> Iterator[tuple[Tensor, Tensor]]:
        yield from blocks_of(x, y)
        raise error

    with pytest.raises(error), rollback([ridge]):
        ridge.update(failing(), rows=80, route=route)
    assert same_bits(ridge, before)
    assert torch.equal(ridge.weights(), weights)
    ridge.update(blocks_of(x, y), rows=40, route=route)
    times = 1 if fresh else 2
    np.testing.assert_allclose(ridge.weights(), joint_weights(np.tile(x, (times, 1)), np.tile(y, (times, 1)), 0.5))


def test_a_rollback_covers_everything_inside() -> None:
    x, y = random_rows(20, 4, 2)
    ridge = learned(x, y, [slice(None)], None)
    before = pack_ridge(ridge)

    def change_everything_then_fail() -> None:
        with rollback([ridge]):
            ridge.grow(5)
            ridge.update(blocks_of(x, y), rows=20, columns=torch.tensor([0, 1]))
            ridge.select(torch.tensor([0]))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        change_everything_then_fail()
    assert same_bits(ridge, before)


@pytest.mark.parametrize("route", ROUTES)
def test_what_float64_cannot_hold_is_refused(route: Route) -> None:
    x, y = random_rows(20, 4, 2)
    ridge = learned(x, y, [slice(None)], None)
    before = pack_ridge(ridge)
    with pytest.raises(InputError, match=r"[Ss]tandardise"), rollback([ridge]):
        ridge.update(blocks_of(np.full_like(x, 1.7e308), y), rows=20, route=route)
    assert same_bits(ridge, before)


def test_one_column_that_float64_cannot_hold_is_refused() -> None:
    x, y = random_rows(8, 4, 2)
    x[:, 3] = 1e308
    ridge = Ridge(4, 0.1)
    ridge.grow(2)
    with pytest.raises(InputError, match="too large"):
        ridge.update(blocks_of(x, y), rows=8, route="qr")


@pytest.mark.parametrize("route", ROUTES)
def test_targets_may_be_of_some_columns(route: Route) -> None:
    x, y = random_rows(12, 10, 2)
    ridge = Ridge(10, 0.1)
    ridge.grow(4)
    ridge.update(blocks_of(x, y, 5), rows=12, columns=torch.tensor([3, 1]), route=route)
    expected = np.zeros((10, 4))
    expected[:, [3, 1]] = joint_weights(x, y, 0.1)
    np.testing.assert_allclose(ridge.weights(), expected, rtol=1e-9, atol=1e-10)
    ridge.update(blocks_of(x[:1], y[:1]), rows=1, columns=torch.tensor([0, 2]), route=route)
    assert ridge.carried is not None  # fewer rows than classes: W came along
    np.testing.assert_allclose(ridge.weights(), ridge.solve(ridge.targets), rtol=1e-9, atol=1e-10)


def test_merged_into_nothing_it_learns_on() -> None:
    x, y = random_rows(40, 10, 3)
    ridge = Ridge(10, 0.1)
    ridge.grow(3)
    ridge.merge(learned(x[:25], y[:25], [slice(None)], None), torch.arange(3))
    for route, rows in zip(ROUTES, (slice(25, 30), slice(30, 40)), strict=True):
        ridge.update(blocks_of(x[rows], y[rows]), rows=len(x[rows]), route=route)
    np.testing.assert_allclose(ridge.weights(), joint_weights(x, y, 0.1), rtol=1e-9, atol=1e-10)


def test_too_small_a_gamma_is_refused_not_repaired() -> None:
    x, y = random_rows(5, 8, 1)
    ridge = Ridge(8, 1e-30)
    ridge.grow(1)
    with pytest.raises(InputError, match="raise gamma"):
        ridge.update(blocks_of(x, y), rows=5, route="cholesky")


def test_the_cheaper_route_is_taken() -> None:
    """Few rows must not cost a d^3, many must not cost twice their flops: told apart by what the backend was asked."""

    class Counting(Lapack):
        def __init__(self) -> None:
            self.calls: list[str] = []

        def factor_(self, gram: Tensor) -> None:
            self.calls.append("cholesky")
            super().factor_(gram)

        def add_rows_to_factor_(self, factor: Tensor, rows: Tensor) -> None:
            self.calls.append("qr")
            super().add_rows_to_factor_(factor, rows)

    x, y = random_rows(300, 120, 1)
    for state, rows, route in [
        ("empty", 5, "qr"),
        ("empty", 60, "cholesky"),
        ("full", 30, "qr"),
        ("full", 200, "cholesky"),
    ]:
        backend = Counting()
        ridge = Ridge(120, 1.0, backend)
        ridge.grow(1)
        if state == "full":
            ridge.update(blocks_of(x, y), rows=300)
        backend.calls.clear()
        ridge.update(blocks_of(x[:rows], y[:rows], size=rows // 2), rows=rows)
        assert set(backend.calls) == {route}, (state, rows)
        assert backend.calls.count("cholesky") <= 1  # once a phase, not once a block


@pytest.mark.parametrize("route", ROUTES)
def test_leaving_one_out_is_learning_without_it(route: Route) -> None:
    x, y = random_rows(12, 20, 3)
    weight = np.array([1, 1, 3, 1, 2, 1, 0.5, 1, 1, 1, 1, 1])
    root = np.sqrt(weight)[:, None]
    ridge = learned(x * root, y * root, [slice(0, 5), slice(5, 12)], route)
    share = np.minimum(weight, 1.0)
    fitted, left_out, _ = ridge.leave_one_out(torch.tensor(x), torch.tensor(y), torch.tensor(share))
    np.testing.assert_allclose(fitted, x @ ridge.weights().numpy(), atol=1e-12)
    for i in range(len(x)):
        rest = np.sqrt(weight - share * (np.arange(len(x)) == i))[:, None]
        np.testing.assert_allclose(left_out[i], x[i] @ joint_weights(x * rest, y * rest, 0.1), atol=1e-9)


def test_weights_are_solved_once_and_follow_the_columns() -> None:
    x, y = random_rows(30, 10, 6)
    ridge = learned(x, y, [slice(None)], None)
    assert (ridge.classes, ridge.empty, Ridge(10, 0.1).classes, Ridge(10, 0.1).empty) == (6, False, 0, True)
    assert Ridge(10, 0.1).weights().shape == (10, 0)
    before = ridge.weights()
    assert ridge.weights() is before
    ridge.grow(2)
    assert torch.equal(ridge.weights()[:, 6:], torch.zeros(10, 2, dtype=torch.float64))
    ridge.select(torch.tensor([7, 4]))
    np.testing.assert_allclose(ridge.weights()[:, 1], before[:, 4], rtol=1e-12)


def test_condition_is_that_of_the_regularised_gram_matrix() -> None:
    x, y = random_rows(50, 20, 1)
    true = np.linalg.cond(x.T @ x + 0.1 * np.eye(20), 1)
    assert true / 3 <= learned(x, y, [slice(None)], None).condition() <= 1.01 * true


def test_memory_is_known_and_refused_beforehand() -> None:
    assert bytes_needed(8192, 0, Lapack()) == 8192**2 * 8
    assert bytes_needed(100, 7, Lapack()) == 8 * (100**2 + 3 * 100 * 7)  # U; Q, its copy and W
    with pytest.raises(MemoryNeededError, match=r"needs 800000\.00 GB") as raised:
        Ridge(10**7, 0.1)
    assert isinstance(raised.value, MemoryError)


def test_weights_come_along_with_few_rows(joint: Joint) -> None:
    """Fewer rows than classes: W is corrected, not solved; after many such phases it is still that of a joint solve."""
    x, y = joint.x[:, :512], joint.y
    ridge = learned(x[:2000], y[:2000], [slice(None)], None, joint.gamma)
    for start in range(2000, 2600):
        ridge.update(blocks_of(x[start : start + 1], y[start : start + 1]), rows=1)
    assert ridge.carried is not None
    expected = joint_weights(x, y, joint.gamma)
    assert np.linalg.norm(ridge.weights().numpy() - expected) <= 1e-8 * np.linalg.norm(expected)
    solved = ridge.solve(ridge.targets)
    assert not torch.equal(ridge.weights(), solved)
    torch.testing.assert_close(ridge.weights(), solved, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("asked", [False, True])
def test_weights_that_came_along_are_part_of_the_state(asked: bool) -> None:
    """A ridge that was stored, and perhaps asked for W before, goes on bit for bit."""
    x, y = random_rows(60, 20, 8)
    ridge = learned(x[:40], y[:40], [slice(None)], None)
    other = unpack_ridge(pack_ridge(ridge), 0.1, Lapack())
    if asked:
        ridge.weights()
    for start in (40, 41, 44):
        for each in (ridge, other):
            each.grow(1)
            rows = slice(start, start + 3)
            each.update(blocks_of(x[rows], y[rows]), rows=3, columns=torch.arange(8))
        assert same_bits(other, pack_ridge(ridge))
        assert torch.equal(other.weights(), ridge.weights())
        other = unpack_ridge(pack_ridge(ridge), 0.1, Lapack())
    np.testing.assert_array_equal(ridge.weights()[:, 8:], 0.0)


def test_a_failure_with_few_rows_leaves_everything_as_it_was() -> None:
    x, y = random_rows(60, 20, 8)
    ridge = learned(x[:40], y[:40], [slice(None)], None)
    ridge.update(blocks_of(x[40:41], y[40:41]), rows=1)
    before, weights = pack_ridge(ridge), ridge.weights().clone()
    with pytest.raises(InputError, match="too large"), rollback([ridge]):
        ridge.update(blocks_of(1e200 * x[41:42], y[41:42]), rows=1)
    assert same_bits(ridge, before)
    assert torch.equal(ridge.weights(), weights)
