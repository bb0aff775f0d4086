"""Both streams against the paper's own recursion."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from dsal.activations import activations, apply, name_of, resolve
from dsal.blas import Backend, Lapack, Torch
from dsal.errors import InputError, UnknownNameError
from dsal.expansion import RandomProjection
from dsal.head import AnalyticHead
from dsal.streams import Block, DualStream, Reader

from .conftest import Rows
from .oracle import Array, PaperDSAL, joint_weights, one_hot, relu

GAMMA, GAMMA_COMP, C = 0.1, 0.3, 0.6
PHASES = [(0, 50), (50, 60), (60, 61), (61, 80), (80, 100)]


def streams_of(size: int, *, cleanse: bool = True, comp: bool = True, backend: Backend | None = None) -> DualStream:
    return DualStream(
        RandomProjection.build(64, size, seed=0, rows=torch.empty(0, 64)),
        main_activation=torch.relu,
        activation=torch.tanh if comp else None,
        gamma=GAMMA,
        gamma_comp=GAMMA_COMP,
        cleanse=cleanse,
        backend=backend or Lapack(),
    )


def reader(x: Array, y: NDArray[np.int64], size: int = 128, weight: Array | None = None) -> Reader:
    def read() -> Iterator[Block]:
        for i in range(0, len(x), size):
            chosen = slice(i, i + size)
            weights = None if weight is None else torch.tensor(weight[chosen])
            yield Block(torch.tensor(x[chosen].copy()), torch.tensor(y[chosen].copy()), weights)

    return read


def learn(streams: DualStream, x: Array, y: NDArray[np.int64], size: int = 128, weight: Array | None = None) -> None:
    classes = max(streams.main.classes, int(y.max()) + 1)
    _, first = np.unique(y, return_index=True)
    present = torch.tensor(y[np.sort(first)])  # in order of appearance
    streams.learn(reader(x, y, size, weight), len(x), present, classes)


def logits(streams: DualStream, x: Array, compensation: float = C) -> Array:
    head = AnalyticHead(
        streams.expansion,
        main_activation=streams.main_activation,
        main=streams.main.weights(),
        activation=torch.tanh,
        comp=None if streams.comp is None else streams.comp.weights(),
        compensation=compensation,
        classes=[],
    )
    return head(torch.tensor(x)).numpy()  # type: ignore[no-any-return]


@pytest.fixture(scope="module")
def paper(rows: Rows) -> PaperDSAL:
    oracle = PaperDSAL(streams_of(512).expansion.projection.numpy(), GAMMA, GAMMA_COMP)
    for phase in PHASES:
        oracle.learn(*rows.phase(*phase))
    return oracle


@pytest.mark.parametrize("backend", [Lapack(), Torch(torch.device("cpu"))], ids=["Lapack", "Torch"])
def test_the_papers_equations(rows: Rows, paper: PaperDSAL, backend: Backend) -> None:
    streams = streams_of(512, backend=backend)
    for phase in PHASES:
        learn(streams, *rows.phase(*phase))
    for compensation in (0.0, C, 1.4):
        difference = logits(streams, rows.new, compensation) - paper.logits(rows.new, compensation)
        assert np.abs(difference).max() <= 1e-8
    assert streams.comp is not None
    assert np.abs(paper.w_comp).max() > 1e-3  # the second stream does say something
    np.testing.assert_allclose(streams.comp.weights(), paper.w_comp, atol=1e-9)


@pytest.mark.parametrize("size", [1, 37, 10**6])
def test_neither_batch_size_nor_order_inside_a_phase_matters(rows: Rows, size: int) -> None:
    one, other = streams_of(256), streams_of(256)
    random = np.random.default_rng(0)
    for phase in [(0, 50), (50, 55), (55, 56)]:
        x, y = rows.phase(*phase)
        learn(one, x, y)
        order = random.permutation(len(x))
        learn(other, x[order], y[order], size)
    assert np.abs(logits(one, rows.new) - logits(other, rows.new)).max() < 1e-9


def additive(
    phases: list[tuple[Array, NDArray[np.int64]]], projection: Array, kept: Callable[[int, NDArray[np.int64]], Array]
) -> tuple[Array, Array]:
    """W_M and W_C by sums alone, for any phases; ``kept`` says which columns of the residue survive."""
    xs, ys = [relu(x @ projection) for x, _ in phases], [one_hot(y, 100) for _, y in phases]
    d = projection.shape[1]
    gram, targets = GAMMA_COMP * np.eye(d), np.zeros((d, 100))
    for k, (x, y) in enumerate(phases):
        main = joint_weights(np.concatenate(xs[: k + 1]), np.concatenate(ys[: k + 1]), GAMMA)
        x_comp = np.tanh(x @ projection)
        gram += x_comp.T @ x_comp
        targets += x_comp.T @ ((ys[k] - xs[k] @ main) * kept(k, y))
    return main, np.linalg.solve(gram, targets)


@pytest.mark.parametrize("cleanse", [True, False])
def test_classes_may_come_back(rows: Rows, cleanse: bool) -> None:
    """Cleansing keeps the columns of the classes present, at first all; without it all columns are kept."""
    odd = rows.y % 2 == 1
    again = np.arange(len(rows.y)) % 3 == 0
    phases = [
        rows.phase(0, 100),
        (rows.x[odd], rows.y[odd]),
        (rows.x[again][::-1], rows.y[again][::-1]),  # all classes, in reverse
        rows.phase(10, 12),
    ]
    streams = streams_of(128, cleanse=cleanse)
    for x, y in phases:
        learn(streams, x, y)

    def kept(k: int, y: NDArray[np.int64]) -> Array:
        return np.ones(100) if k == 0 or not cleanse else np.isin(np.arange(100), y).astype(float)

    main, comp = additive(phases, streams.expansion.projection.numpy(), kept)
    np.testing.assert_allclose(streams.main.weights(), main, atol=1e-9)
    assert streams.comp is not None
    np.testing.assert_allclose(streams.comp.weights(), comp, atol=1e-9)
    without = additive(phases, streams.expansion.projection.numpy(), lambda k, y: np.ones(100))[1]
    assert (np.abs(without - comp).max() > 1e-4) == cleanse


def test_weights_are_repetitions_in_both_streams(rows: Rows) -> None:
    one, other = streams_of(64), streams_of(64)
    times = np.random.default_rng(0).integers(1, 4, len(rows.x))
    for phase in [(0, 60), (60, 100)]:
        x, y = rows.phase(*phase)
        count = times[(rows.y >= phase[0]) & (rows.y < phase[1])]
        learn(one, x, y, weight=count.astype(float))
        learn(other, np.repeat(x, count, axis=0), np.repeat(y, count))
    np.testing.assert_allclose(logits(one, rows.new), logits(other, rows.new), atol=1e-10)


def test_the_main_stream_alone(rows: Rows) -> None:
    both, alone = streams_of(128), streams_of(128, comp=False)
    for phase in PHASES:
        learn(both, *rows.phase(*phase))
        learn(alone, *rows.phase(*phase))
    assert alone.comp is None
    assert np.array_equal(logits(alone, rows.new), logits(both, rows.new, compensation=0.0))


@pytest.mark.parametrize("fails_in_pass", [1, 2])
@pytest.mark.parametrize("fresh", [True, False])
def test_a_phase_that_fails_leaves_every_bit_of_both_streams(rows: Rows, fails_in_pass: int, fresh: bool) -> None:
    streams = streams_of(64)
    if not fresh:
        learn(streams, *rows.phase(0, 50))
    before = {name: array.tobytes() for name, array in streams.state().items()}
    x, y = rows.phase(50, 60)
    passes = 0

    def failing() -> Iterator[Block]:
        nonlocal passes
        passes += 1
        yield from reader(x, y)()
        if passes == fails_in_pass:
            raise OSError("the disk is gone")

    with pytest.raises(OSError, match="the disk is gone"):
        streams.learn(failing, len(x), torch.arange(50, 60), 60)
    assert {name: array.tobytes() for name, array in streams.state().items()} == before
    assert streams.main._empty == fresh


def test_leaving_one_out_of_both_streams(rows: Rows) -> None:
    """The compensation stream leaves out one row of its sums, with all residues as they were."""
    streams = streams_of(64)
    learn(streams, *rows.phase(0, 90))
    x, y = rows.phase(90, 100)
    learn(streams, x, y)
    present = torch.arange(90, 100)
    chosen = np.arange(0, len(x), 29)
    got = streams.leave_one_out(Block(torch.tensor(x[chosen]), torch.tensor(y[chosen])), present, False, C).numpy()

    z = x @ streams.expansion.projection.numpy()
    residue = one_hot(y, 100) - relu(z) @ streams.main.weights().numpy()
    residue[:, :90] = 0.0
    for place, i in enumerate(chosen):
        main, comp = streams_of(64), streams_of(64)
        learn(main, *rows.phase(0, 90))
        main.learn(reader(np.delete(x, i, 0), np.delete(y, i)), len(x) - 1, present, 100)
        assert comp.comp is not None
        assert streams.comp is not None
        comp.comp.grow(100)
        comp.comp.merge(streams.comp, torch.arange(100))
        comp.comp.subtract([(torch.tensor(np.tanh(z[i : i + 1])), torch.tensor(residue[i : i + 1]))])
        expected = relu(z[i]) @ main.main.weights().numpy() + C * np.tanh(z[i]) @ comp.comp.weights().numpy()
        np.testing.assert_allclose(got[place], expected, atol=1e-9)


def test_of_a_row_of_weight_three_one_is_left_out(rows: Rows) -> None:
    weight = np.ones(len(rows.x))
    weight[[5, 6]] = 3.0, 0.25
    streams, fewer, without = (streams_of(64, comp=False) for _ in range(3))
    learn(streams, rows.x, rows.y, weight=weight)
    block = Block(torch.tensor(rows.x[5:7]), torch.tensor(rows.y[5:7]), torch.tensor(weight[5:7]))
    got = streams.leave_one_out(block, torch.arange(100), True, 0.0).numpy()
    weight[5] = 2.0
    learn(fewer, rows.x, rows.y, weight=weight)
    np.testing.assert_allclose(got[0], logits(fewer, rows.x[5:6])[0], atol=1e-9)
    weight[5] = 3.0
    others = np.arange(len(rows.x)) != 6
    learn(without, rows.x[others], rows.y[others], weight=weight[others])
    np.testing.assert_allclose(got[1], logits(without, rows.x[6:7])[0], atol=1e-9)


def test_activations_by_name() -> None:
    wanted = {
        "relu",
        "tanh",
        "mish",
        "hardswish",
        "gelu",
        "silu",
        "sigmoid",
        "elu",
        "leaky_relu",
        "softplus",
        "identity",
    }
    assert wanted <= set(activations.names())
    z = torch.linspace(-3, 3, 12, dtype=torch.float64).reshape(3, 4)
    for name in activations.names():
        assert apply(resolve(name), z).shape == z.shape
        assert name_of(resolve(name)) == name == name_of(name)
    own = lambda z: z**3  # noqa: E731
    assert resolve(own) is own
    with pytest.raises(UnknownNameError, match="did you mean 'hardswish'"):
        resolve("hardwish")
    with pytest.raises(InputError, match="no name to save it by"):
        name_of(own)


@pytest.mark.parametrize(
    ("activation", "message"),
    [
        (lambda z: z.sum(1), "maps a tensor to its like"),
        (lambda z: z.float(), "maps a tensor to its like"),
        (lambda z: z.numpy(), "maps a tensor to its like"),
        (lambda z: z.relu_(), "in place"),
        (lambda z: z.log(), "not finite"),
    ],
)
def test_activations_that_misbehave(activation: Callable[[Tensor], Tensor], message: str) -> None:
    with pytest.raises(InputError, match=message):
        apply(activation, torch.tensor([[-1.0, 2.0]], dtype=torch.float64))
