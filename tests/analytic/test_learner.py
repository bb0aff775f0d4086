"""The learner against the paper's own recursion."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from tests.oracle import Array, PaperDSAL, Rows, joint_weights, one_hot, relu
from torch import Tensor

from dsal.analytic.activations import activations, apply, name_of, resolve
from dsal.analytic.expansion import RandomProjection
from dsal.analytic.learner import Learner
from dsal.analytic.leave_one_out import leave_one_out, review
from dsal.analytic.ridge import Ridge
from dsal.analytic.rows import Block, PhaseRows, Reader
from dsal.analytic.streams import Compensation, cleansed
from dsal.distributed import Team
from dsal.errors import InputError, UnknownNameError
from dsal.files.tensors import flat, parted
from dsal.linalg.backend import Backend, Lapack, Torch

GAMMA, GAMMA_COMP, C = 0.1, 0.3, 0.6
PHASES = [(0, 50), (50, 60), (60, 61), (61, 80), (80, 100)]


def learner_of(size: int, *, cleanse: bool = True, comp: bool = True, backend: Backend | None = None) -> Learner:
    return Learner(
        size=size,
        gamma=GAMMA,
        compensations=(Compensation(torch.tanh, cleanse, GAMMA_COMP),) if comp else (),
        backend=backend or Lapack(),
    )


def projection(size: int) -> Array:
    return RandomProjection.build(64, size, seed=0, rows=torch.empty(0, 64)).projection.numpy()


def reader(x: Array, y: NDArray[np.int64], size: int | None = 128, weight: Array | None = None) -> Reader:
    def read(asked: int) -> Iterator[Block]:
        step = size or asked
        for i in range(0, len(x), step):
            chosen = slice(i, i + step)
            weights = None if weight is None else torch.tensor(weight[chosen])
            yield Block(torch.tensor(x[chosen].copy()), torch.tensor(y[chosen].copy()), weights)

    return read


def learn(learner: Learner, x: Array, y: NDArray[np.int64], size: int = 128, weight: Array | None = None) -> None:
    classes = max(learner.classes, int(y.max()) + 1)
    learner.learn(PhaseRows(reader(x, y, size, weight), len(x), torch.tensor(np.unique(y)), classes))


def logits(learner: Learner, x: Array, compensation: float = C) -> Array:
    return learner.logits(x, compensation)


@pytest.fixture(scope="module")
def paper(rows: Rows) -> PaperDSAL:
    oracle = PaperDSAL(projection(512), GAMMA, GAMMA_COMP)
    for phase in PHASES:
        oracle.learn(*rows.phase(*phase))
    return oracle


@pytest.mark.parametrize("backend", [Lapack(), Torch(torch.device("cpu"))], ids=["Lapack", "Torch"])
def test_the_papers_equations(rows: Rows, paper: PaperDSAL, backend: Backend) -> None:
    learner = learner_of(512, backend=backend)
    for phase in PHASES:
        learn(learner, *rows.phase(*phase))
    for compensation in (0.0, C, 1.4):
        difference = logits(learner, rows.new, compensation) - paper.logits(rows.new, compensation)
        assert np.abs(difference).max() <= 1e-8
    assert np.abs(paper.w_comp).max() > 1e-3  # the second stream does say something
    np.testing.assert_allclose(learner.weights[1], paper.w_comp, atol=1e-9)


@pytest.mark.parametrize("size", [1, 37, 10**6])
def test_neither_batch_size_nor_order_inside_a_phase_matters(rows: Rows, size: int) -> None:
    one, other = learner_of(256), learner_of(256)
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
    learner = learner_of(128, cleanse=cleanse)
    for x, y in phases:
        learn(learner, x, y)

    def kept(k: int, y: NDArray[np.int64]) -> Array:
        return np.ones(100) if k == 0 or not cleanse else np.isin(np.arange(100), y).astype(float)

    main, comp = additive(phases, learner.built().projection.numpy(), kept)
    np.testing.assert_allclose(learner.weights[0], main, atol=1e-9)
    np.testing.assert_allclose(learner.weights[1], comp, atol=1e-9)
    without = additive(phases, learner.built().projection.numpy(), lambda k, y: np.ones(100))[1]
    assert (np.abs(without - comp).max() > 1e-4) == cleanse


def test_weights_are_repetitions_in_both_streams(rows: Rows) -> None:
    one, other = learner_of(64), learner_of(64)
    times = np.random.default_rng(0).integers(1, 4, len(rows.x))
    for phase in [(0, 60), (60, 100)]:
        x, y = rows.phase(*phase)
        count = times[(rows.y >= phase[0]) & (rows.y < phase[1])]
        learn(one, x, y, weight=count.astype(float))
        learn(other, np.repeat(x, count, axis=0), np.repeat(y, count))
    np.testing.assert_allclose(logits(one, rows.new), logits(other, rows.new), atol=1e-10)


def test_after_a_first_phase_of_one_class_old_labels_are_cleansed_too(rows: Rows) -> None:
    learner = learner_of(64)
    learn(learner, *rows.phase(0, 1))
    before = learner.comps[0].targets[:, 0].clone()
    assert before.abs().max() > 0
    learn(learner, *rows.phase(1, 3))
    assert torch.equal(learner.comps[0].targets[:, 0], before)


def test_a_team_can_neither_forget_nor_merge(rows: Rows) -> None:
    one, other = learner_of(32), learner_of(32)
    x, y = rows.phase(0, 3)
    for each in (one, other):
        learn(each, x, y)
    foreign = Learner(size=32, seed=1, compensations=one.compensations)
    learn(foreign, x, y)
    with pytest.raises(InputError, match="equal expansions"):
        one.merge(foreign, torch.tensor([0, 1, 2]), 3)
    one.team = Team(rank=0, size=2)
    phase = PhaseRows(reader(x, y), len(x), torch.tensor([0, 1, 2]), 3)
    with pytest.raises(InputError, match="not forget"):
        one.unlearn(phase)
    with pytest.raises(InputError, match="not merge"):
        one.merge(other, torch.tensor([0, 1, 2]), 3)


def test_models_share_nothing_with_those_they_come_from(rows: Rows) -> None:
    """Restored, copied or as a head: whatever either learns later, the other answers as before, bit for bit."""
    first = learner_of(32)
    learn(first, *rows.phase(0, 5))
    second = learner_of(32)
    second.restore({name: array.copy() for name, array in first.state().items()}, first.facts())
    third, head, before = copy.deepcopy(first), first.head(C), logits(first, rows.new)
    learn(first, *rows.phase(5, 8))
    learn(third, *rows.phase(5, 6))
    assert np.array_equal(logits(second, rows.new), before)
    assert torch.equal(head(torch.tensor(rows.new)), second.head(C)(torch.tensor(rows.new)))
    assert (first.classes, second.classes, third.classes) == (8, 5, 6)


def test_parts_of_a_state_are_known_by_their_whole_names(rows: Rows) -> None:
    """Arrays of others may have the name of a part inside their own."""
    parts = {"main": {"targets": np.ones(1)}, "comp": {"targets": np.ones(2)}, "comp1": {"a.b": np.ones(3)}}
    assert flat(parts).keys() == {"main.targets", "comp.targets", "comp1.a.b"}
    assert parted(flat(parts)) == parts
    learner, restored = learner_of(32), learner_of(32)
    learn(learner, *rows.phase(0, 5))
    junk = {f"{name}.targets": np.full(3, np.nan) for name in ("remain", "history.main", "comp9")}
    restored.restore({**junk, **learner.state(), **junk}, learner.facts())
    assert np.array_equal(logits(restored, rows.new), logits(learner, rows.new))


def test_the_main_stream_alone(rows: Rows) -> None:
    both, alone = learner_of(128), learner_of(128, comp=False)
    for phase in PHASES:
        learn(both, *rows.phase(*phase))
        learn(alone, *rows.phase(*phase))
    assert len(alone.ridges) == 1
    assert np.array_equal(logits(alone, rows.new, compensation=0.0), logits(both, rows.new, compensation=0.0))


@pytest.mark.parametrize("fails_in_pass", [1, 2])
@pytest.mark.parametrize("fresh", [True, False])
def test_a_phase_that_fails_leaves_every_bit_of_both_streams(rows: Rows, fails_in_pass: int, fresh: bool) -> None:
    learner = learner_of(64)
    if not fresh:
        learn(learner, *rows.phase(0, 50))
    before = {name: array.tobytes() for name, array in learner.state().items()}
    x, y = rows.phase(50, 60)
    passes = 0

    def failing(size: int) -> Iterator[Block]:
        nonlocal passes
        passes += 1
        yield from reader(x, y)(size)
        if passes == fails_in_pass + fresh:  # a fresh learner looks at the width of the first row
            raise OSError("the disk is gone")

    with pytest.raises(OSError, match="the disk is gone"):
        learner.learn(PhaseRows(failing, len(x), torch.arange(50, 60), 60))
    assert {name: array.tobytes() for name, array in learner.state().items()} == before
    assert (learner.main is None) == fresh


@pytest.mark.parametrize(("cleanse", "step"), [(True, 29), (False, 67)])
def test_leaving_one_out_of_both_streams(rows: Rows, cleanse: bool, step: int) -> None:
    """The compensation stream leaves out one row of its sums, with all residues as they were."""
    learner = learner_of(64, cleanse=cleanse)
    learn(learner, *rows.phase(0, 90))
    x, y = rows.phase(90, 100)
    learn(learner, x, y)
    present = torch.arange(90, 100)
    chosen = np.arange(0, len(x), step)
    block = Block(torch.tensor(x[chosen]), torch.tensor(y[chosen]))
    parts = leave_one_out(learner, block, present, first=False)
    got = (parts[0] + C * parts[1]).numpy()
    np.testing.assert_array_equal(review(learner, block, present, float(len(x)), 0.0), parts[0])
    assert not np.allclose(review(learner, block, present, float(len(x)), 1.0), parts[0])  # compensated

    z = x @ learner.built().projection.numpy()
    residue = one_hot(y, 100) - relu(z) @ learner.weights[0].numpy()
    residue[:, : 90 if cleanse else 0] = 0.0
    for place, i in enumerate(chosen):
        main, comp = learner_of(64), Ridge(64, GAMMA_COMP)
        learn(main, *rows.phase(0, 90))
        main.learn(PhaseRows(reader(np.delete(x, i, 0), np.delete(y, i)), len(x) - 1, present, 100))
        comp.grow(100)
        comp.merge(learner.comps[0], torch.arange(100))
        comp.subtract([(torch.tensor(np.tanh(z[i : i + 1])), torch.tensor(residue[i : i + 1]))])
        expected = relu(z[i]) @ main.weights[0].numpy() + C * np.tanh(z[i]) @ comp.weights().numpy()
        np.testing.assert_allclose(got[place], expected, atol=1e-9)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("cleanse", [False, True])
def test_reviewed_rows_of_a_whole_phase_are_left_out_of_everything(rows: Rows, cleanse: bool, weighted: bool) -> None:
    """Without a row, the main stream leaves other residues for the other rows too."""
    x, y = rows.phase(90, 100)
    weight = np.linspace(0.5, 3.0, len(x)) if weighted else None
    learner = learner_of(64, cleanse=cleanse)
    learn(learner, *rows.phase(0, 90))
    learn(learner, x, y, weight=weight)
    block = Block(torch.tensor(x), torch.tensor(y), None if weight is None else torch.tensor(weight))
    total = float(len(x)) if weight is None else float(weight.sum())
    got = review(learner, block, torch.arange(90, 100), total, C).numpy()
    for i in range(0, len(x), 97):
        fewer = np.ones(len(x)) if weight is None else weight.copy()
        fewer[i] -= min(fewer[i], 1.0)
        kept = fewer > 0
        without = learner_of(64, cleanse=cleanse)
        learn(without, *rows.phase(0, 90))
        learn(without, x[kept], y[kept], weight=fewer[kept])
        np.testing.assert_allclose(got[i], logits(without, x[i : i + 1], C)[0], atol=1e-9)


def test_reviewed_rows_of_a_sample_are_right_on_average(rows: Rows) -> None:
    """The mean over all samples of two rows with row 0 among them is what the whole phase says of row 0."""
    x, y = torch.tensor(rows.x[::40]), torch.tensor(rows.y[::40])
    learner, present, total = learner_of(64), torch.arange(100), float(len(x))
    learn(learner, x.numpy(), y.numpy())
    whole = review(learner, Block(x, y), present, total, C)[0]
    samples = [review(learner, Block(x[[0, j]], y[[0, j]]), present, total, C)[0] for j in range(1, len(x))]
    np.testing.assert_allclose(torch.stack(samples).mean(0), whole, atol=1e-12)
    main, comp = leave_one_out(learner, Block(x[:1], y[:1]), present, first=True)
    np.testing.assert_allclose(review(learner, Block(x[:1], y[:1]), present, total, C), main + C * comp, atol=1e-12)


def test_of_a_row_of_weight_three_one_is_left_out(rows: Rows) -> None:
    weight = np.ones(len(rows.x))
    weight[[5, 6]] = 3.0, 0.25
    learner, fewer, without = (learner_of(64, comp=False) for _ in range(3))
    learn(learner, rows.x, rows.y, weight=weight)
    block = Block(torch.tensor(rows.x[5:7]), torch.tensor(rows.y[5:7]), torch.tensor(weight[5:7]))
    got = leave_one_out(learner, block, torch.arange(100), first=True)[0].numpy()
    weight[5] = 2.0
    learn(fewer, rows.x, rows.y, weight=weight)
    np.testing.assert_allclose(got[0], logits(fewer, rows.x[5:6], 0.0)[0], atol=1e-9)
    weight[5] = 3.0
    others = np.arange(len(rows.x)) != 6
    learn(without, rows.x[others], rows.y[others], weight=weight[others])
    np.testing.assert_allclose(got[1], logits(without, rows.x[6:7], 0.0)[0], atol=1e-9)


@pytest.mark.parametrize("present", [[0], [1, 3], [0, 1, 2, 3]])
def test_cleansing_zeroes_the_columns_of_absent_classes_and_nothing_else(present: list[int]) -> None:
    residue = torch.randn(5, 4, dtype=torch.float64)
    clean = cleansed(residue, torch.tensor(present))
    for column in range(4):
        expected = residue[:, column] if column in present else torch.zeros(5, dtype=torch.float64)
        assert torch.equal(clean[:, column], expected)


def test_the_papers_compensation_is_the_default() -> None:
    assert Compensation() == Compensation(activation=torch.tanh, cleanse=True, gamma=None)


def test_several_compensation_streams_on_one_main_stream(rows: Rows) -> None:
    """Each learns as if it were alone, and a caller that stops between two of them has learned nothing."""
    kinds = (Compensation(torch.tanh, True, GAMMA_COMP), Compensation(torch.sigmoid, False))
    several = Learner(size=64, gamma=GAMMA, compensations=kinds, backend=Lapack())
    alone = [Learner(size=64, gamma=GAMMA, compensations=(kind,), backend=Lapack()) for kind in kinds]
    for phase in [(0, 50), (50, 60)]:
        for each in (several, *alone):
            learn(each, *rows.phase(*phase))
    outputs = several.outputs(rows.new)
    for number, each in enumerate(alone, start=1):
        assert torch.equal(outputs[0], each.outputs(rows.new)[0])
        assert torch.equal(outputs[number], each.outputs(rows.new)[1])
    before = {name: array.tobytes() for name, array in several.state().items()}
    x, y = rows.phase(60, 70)
    steps = several.learn_streams(PhaseRows(reader(x, y), len(x), torch.arange(60, 70), 70))
    assert next(steps) == 0
    assert next(steps) == 1
    steps.close()
    assert {name: array.tobytes() for name, array in several.state().items()} == before
    assert several.classes == 60


def test_outputs_are_those_of_every_row_in_float64(rows: Rows) -> None:
    """Of more rows than a block has, given in float32."""
    learner = learner_of(64)
    learn(learner, *rows.phase(0, 50))
    x = np.tile(rows.new, (learner.block_rows // len(rows.new) + 2, 1)).astype(np.float32)
    z = x.astype(np.float64) @ learner.built().projection.numpy()
    expected = relu(z) @ learner.weights[0].numpy(), np.tanh(z) @ learner.weights[1].numpy()
    for got, wanted in zip(learner.outputs(x), expected, strict=True):
        np.testing.assert_allclose(got, wanted, atol=1e-12)


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
        (lambda z: z.sum(1), "must keep shape and dtype"),
        (lambda z: z.float(), "must keep shape and dtype"),
        (lambda z: z.numpy(), "must keep shape and dtype"),
        (lambda z: z.relu_(), "in place"),
        (lambda z: z.log(), "not finite"),
    ],
)
def test_activations_that_misbehave(activation: Callable[[Tensor], Tensor], message: str) -> None:
    with pytest.raises(InputError, match=message):
        apply(activation, torch.tensor([[-1.0, 2.0]], dtype=torch.float64))
