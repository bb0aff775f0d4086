"""Leave-one-out in closed form against models that really leave the row out."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor

from dsal.analytic.activations import resolve
from dsal.analytic.expansion import RandomProjection
from dsal.analytic.rows import Block
from dsal.analytic.tuning import GAMMAS, GammaChoice, RatioFit, RidgePath, choose_gamma
from dsal.base.options import COMPENSATION
from dsal.data import Scenario
from dsal.data.features.feature_set import FeatureSet
from dsal.errors import InputError
from dsal.linalg.backend import Backend, Lapack, Torch
from dsal.protocol.experiment import Experiment, Setting
from dsal.reproduction.stream_training import Stream, check_choice, choose_values, train

BACKENDS = [Lapack(), Torch(torch.device("cpu"))]


def expanded(sample: FeatureSet, rows: int, size: int = 48) -> tuple[Tensor, Tensor]:
    """ReLU expansions of real features (rows x size), and one-hot targets of 10 classes."""
    chosen = np.flatnonzero(sample.train_y < 10)[:rows]
    expansion = RandomProjection.build(sample.train_x.shape[1], size, 0, torch.empty(0))
    x = torch.relu(expansion(torch.from_numpy(sample.train_x[chosen].astype(np.float64))))
    y = torch.from_numpy(sample.train_y[chosen])[:, None] == torch.arange(10)
    return x, y.double()


def solve(x: Tensor, y: Tensor, gamma: float) -> Tensor:
    return torch.linalg.solve(x.T @ x + gamma * torch.eye(x.shape[1]).double(), x.T @ y)


def test_the_grid_is_half_decades() -> None:
    assert GAMMAS == (0.001, 0.00316, 0.01, 0.0316, 0.1, 0.316, 1.0, 3.16, 10.0, 31.6, 100.0, 316.0, 1000.0)


@pytest.mark.parametrize("backend", BACKENDS, ids=["lapack", "torch"])
def test_the_path_is_the_ridge_of_every_gamma(sample: FeatureSet, backend: Backend) -> None:
    x, y = expanded(sample, 150)
    path = RidgePath(x.T @ x, x.T @ y, backend)
    for gamma in GAMMAS:
        expected = solve(x, y, gamma)
        torch.testing.assert_close(path.weights(gamma), expected, rtol=1e-6, atol=1e-6 * float(expected.abs().max()))


@pytest.mark.parametrize("backend", BACKENDS, ids=["lapack", "torch"])
@pytest.mark.parametrize("gamma", [0.1, 10.0])
def test_outputs_are_those_of_models_without_the_row(sample: FeatureSet, backend: Backend, gamma: float) -> None:
    x, y = expanded(sample, 60)
    expected = []
    for row in range(20):
        others = torch.arange(60) != row
        expected.append(x[row] @ solve(x[others], y[others], gamma))
    path = RidgePath(x.T @ x, x.T @ y, backend)
    (found,) = path.left_out(x[:20], y[:20], torch.ones(20).double(), [gamma])
    torch.testing.assert_close(found, torch.stack(expected), rtol=1e-7, atol=1e-9)


def test_a_row_of_weight_two_is_a_row_learned_twice(sample: FeatureSet) -> None:
    rows = np.flatnonzero(sample.train_y < 10)[:60]
    features, columns = (
        torch.from_numpy(sample.train_x[rows].astype(np.float64)),
        torch.from_numpy(sample.train_y[rows]),
    )
    twice = Block(torch.cat([features, features[:5]]), torch.cat([columns, columns[:5]]))
    weight = torch.ones(60).double()
    weight[:5] = 2.0
    weighted = Block(features, columns, weight)
    expansion = RandomProjection.build(features.shape[1], 32, 0, torch.empty(0))
    sampled = Block(features[:9], columns[:9])
    one, other = (
        choose_gamma(lambda size: iter([block]), sampled, expansion, resolve("relu"), torch.arange(10), Lapack())  # noqa: B023
        for block in (twice, weighted)
    )
    assert (one.choice.wrong == other.choice.wrong).all()
    torch.testing.assert_close(one.left_out, other.left_out)
    torch.testing.assert_close(one.weights, other.weights)
    x, y = torch.relu(expansion(features)), (columns[:, None] == torch.arange(10)).double()
    exact = solve(weight.sqrt()[:, None] * x, weight.sqrt()[:, None] * y, other.choice.gamma)
    torch.testing.assert_close(other.weights, exact, rtol=1e-8, atol=1e-9)


def test_the_least_gamma_that_answers_as_well_as_the_best_is_chosen() -> None:
    def choice(*wrong: int) -> float:
        """Each gamma answers the first so many of 100 rows wrongly."""
        return GammaChoice((0.1, 1.0, 10.0), np.arange(100) < np.array(wrong)[:, None]).gamma

    assert choice(20, 20, 20) == 0.1
    assert choice(40, 20, 40) == 1.0
    assert choice(60, 40, 20) == 10.0
    assert choice(60, 21, 20) == 1.0  # one row more is no more than chance
    assert choice(21, 60, 20) == 0.1


def test_a_gamma_of_zero_is_refused(sample: FeatureSet) -> None:
    x, y = expanded(sample, 60)
    with pytest.raises(InputError, match="above 0"):
        RidgePath(x.T @ x, x.T @ y, Lapack()).weights(0.0)


def test_the_memory_of_choosing_is_asked_for(sample: FeatureSet, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    monkeypatch.setattr("dsal.analytic.tuning.require", lambda needed, *_: asked.append(needed))
    rows = Block(torch.eye(3).double(), torch.tensor([0, 1, 0]))
    identity = RandomProjection(torch.eye(3).double())
    choose_gamma(lambda size: iter([rows]), rows, identity, resolve("relu"), torch.arange(2), Lapack(), gammas=(1.0,))
    assert asked == [5 * 8 * 3**2]  # five squares in float64


def test_what_is_not_finite_is_wrong() -> None:
    """A row that alone carries a column: with all the weight in the world its leverage is 1, and 0 / 0 is left."""
    rows = Block(torch.diag(torch.tensor([1e12, 1e12, 1.0])).double(), torch.tensor([0, 1, 0]))
    identity = RandomProjection(torch.eye(3).double())
    chosen = choose_gamma(
        lambda size: iter([rows]), rows, identity, resolve("relu"), torch.arange(2), Lapack(), gammas=(1e-3, 1e3)
    )
    assert not chosen.left_out[:2].isfinite().all()
    assert chosen.choice.wrong[:, :2].all()


def test_the_ratio_is_the_least_squares_answer() -> None:
    random = np.random.default_rng(0)
    corrections = random.normal(size=(40, 3))
    errors = 0.7 * corrections + 0.1 * random.normal(size=(40, 3))
    weight = random.uniform(0.5, 2.0, 40)
    fit = RatioFit().plus(errors, corrections, weight, total=weight.sum())
    grid = np.linspace(0, 2, 20001)
    losses = [(weight[:, None] * (errors - c * corrections) ** 2).sum() for c in grid]
    assert fit.ratio == pytest.approx(grid[int(np.argmin(losses))], abs=1e-4)
    parts = [RatioFit().plus(errors[p], corrections[p], weight[p], total=weight[p].sum()) for p in
             (slice(15), slice(15, 40))]  # fmt: skip
    assert parts[0].merged(parts[1]).ratio == pytest.approx(fit.ratio)


@pytest.mark.parametrize("holed", ["errors", "corrections"])
def test_a_row_that_is_finite_only_in_part_has_no_say(holed: str) -> None:
    random = np.random.default_rng(0)
    parts = {name: random.normal(size=(6, 3)) for name in ("errors", "corrections")}
    rest = RatioFit().plus(*(part[1:] for part in parts.values()), np.ones(5), total=6.0)
    parts[holed][0, 1] = np.nan
    assert RatioFit().plus(*parts.values(), np.ones(6), total=6.0) == rest


def test_a_ratio_is_never_negative_and_nothing_learned_gives_the_default() -> None:
    one = np.ones((1, 2))
    assert RatioFit().plus(-one, one, np.ones(1), 1.0).ratio == 0.0
    assert RatioFit().plus(one, np.full((1, 2), np.nan), np.ones(1), 1.0).ratio == COMPENSATION


def test_tuning_reads_no_test_sample(sample: FeatureSet) -> None:
    blind = replace(sample, test_x=sample.test_x[:0], test_y=sample.test_y[:0])
    setting = Setting(Experiment(phases=4), blind, Scenario.deal(100, phases=4), "base classes", {})
    chosen = list(choose_values(setting, size=32))
    assert [step.phase for step in chosen] == [0, 1, 2, 3, 4]
    assert len({step.gamma for step in chosen}) == 1
    assert len({step.ratio for step in chosen}) == 5


def test_the_choice_wins_most_of_what_compensation_can_win(sample: FeatureSet) -> None:
    """Three quarters and more of the gain of the best gamma and C of a grid, read on test data, over C = 0."""
    setting = Setting(Experiment(phases=5), sample, Scenario.deal(100, phases=5), "base classes", {})
    *_, chosen = choose_values(setting, size=128)
    found = check_choice(setting, chosen.gamma, chosen.ratio, size=128)
    without = train(sample, setting.scenario, [Stream()], size=128, gamma=0.1, ratio=0.0, seed=0)["tanh"]
    main = 100 * without.hits[-1].sum() / without.totals.sum()
    assert found.loss == found.best_last - found.last >= 0
    assert found.last - main >= 0.75 * (found.best_last - main) > 2.0


def test_the_command_prints_the_choice(sample_file: object, capsys: pytest.CaptureFixture[str]) -> None:
    from dsal.cli.run import tune

    tune(dataset=str(sample_file), phases=3, expansion_size=32, json=True)
    result = json.loads(capsys.readouterr().out)
    assert result["gamma"] in GAMMAS
    assert len(result["compensation_by_phase"]) == 4
    assert result["compensation"] == result["compensation_by_phase"][-1] > 0
