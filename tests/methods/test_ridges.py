"""Methods that solve a ridge regression on expanded features, against literal formulas and scikit-learn."""

import numpy as np
import pytest
from sklearn.linear_model import Ridge

from dsal.data import Scenario
from dsal.data.features.feature_set import FeatureSet
from dsal.errors import InputError
from dsal.linalg.backend import Lapack
from dsal.methods import Method
from dsal.methods.closed_form.air import AIR
from dsal.methods.closed_form.ds_al import ACIL
from dsal.methods.closed_form.gkeal import GKEAL
from dsal.methods.closed_form.ranpac import PENALTIES, RanPAC, best_penalty


def learn(method: Method, x: np.ndarray, y: np.ndarray, phases: int) -> Method:
    scenario = Scenario.deal(int(y.max()) + 1, phases=phases)
    for k, group in enumerate(scenario.phases):
        rows = scenario.phase_rows(y, k)
        method.learn_rows(x[rows], y[rows], group)
    return method


def relu(x: np.ndarray, projection: np.ndarray) -> np.ndarray:
    return np.maximum(x.astype(np.float64) @ projection, 0.0)


def uneven(sample: FeatureSet) -> np.ndarray:
    """Rows of ten classes, of the first all twenty, of each next one two fewer."""
    return np.concatenate([np.flatnonzero(sample.train_y == c)[: 20 - 2 * c] for c in range(10)])


def test_air_weighs_all_classes_alike(sample: FeatureSet) -> None:
    rows = uneven(sample)
    x, y = sample.train_x[rows], sample.train_y[rows]
    method = learn(AIR(expansion_size=64, gamma=0.5, seed=2), x, y, phases=3)
    projection = np.random.RandomState(2).uniform(-1 / 8, 1 / 8, (64, 64))
    counts = np.bincount(y)
    weights = (1 / counts)[y] * 10 / (1 / counts).sum()
    oracle = Ridge(alpha=0.5, fit_intercept=False).fit(relu(x, projection), np.eye(10)[y], sample_weight=weights)
    expected = oracle.predict(relu(sample.test_x, projection))
    np.testing.assert_allclose(method.scores(sample.test_x), expected, atol=1e-9)


def test_air_on_classes_of_one_size_is_acil(sample: FeatureSet) -> None:
    air = learn(AIR(expansion_size=64), sample.train_x, sample.train_y, phases=5)
    acil = learn(ACIL(expansion_size=64), sample.train_x, sample.train_y, phases=5)
    np.testing.assert_allclose(air.scores(sample.test_x), acil.scores(sample.test_x), atol=1e-9)


def test_air_wants_every_class_to_have_samples(sample: FeatureSet) -> None:
    with pytest.raises(InputError, match="class 1"):
        AIR(expansion_size=8).learn_rows(sample.train_x[:3], np.zeros(3, dtype=np.int64), [0, 1])


@pytest.mark.parametrize("size", [32, 400])  # fewer and more columns than rows: both forms of the solution
def test_ranpac_chooses_the_penalty_that_predicts_best(size: int, sample: FeatureSet) -> None:
    rows = np.random.RandomState(0).permutation(200)
    x, y = sample.train_x[rows], sample.train_y[rows]
    projection = np.random.RandomState(1).standard_normal((64, size))
    expanded, targets = relu(x, projection), np.eye(10)[y]
    losses = []
    for penalty in PENALTIES:
        left, right = expanded[:160].T @ expanded[:160], expanded[:160].T @ targets[:160]
        weights = np.linalg.solve(left + penalty * np.eye(size), right)
        losses.append(((expanded[160:] @ weights - targets[160:]) ** 2).mean())
    assert best_penalty(x, y, projection, Lapack()) == PENALTIES[int(np.argmin(losses))]


def test_ranpac_is_ridge_with_the_penalty_of_its_last_phase(sample: FeatureSet) -> None:
    x, y = sample.train_x[:400], sample.train_y[:400]
    method = learn(RanPAC(expansion_size=64, seed=4), x, y, phases=3)
    projection = np.random.RandomState(4).standard_normal((64, 64))
    expanded = relu(x, projection)
    left = expanded.T @ expanded + float(method.penalty_) * np.eye(64)
    expected = relu(sample.test_x, projection) @ np.linalg.solve(left, expanded.T @ np.eye(20)[y])
    np.testing.assert_allclose(method.scores(sample.test_x), expected, atol=1e-8)


def test_ranpac_keeps_its_penalty_in_a_phase_of_one_sample(sample: FeatureSet) -> None:
    method = learn(RanPAC(expansion_size=16), sample.train_x[:200], sample.train_y[:200], phases=2)
    before = float(method.penalty_)
    method.learn_rows(sample.train_x[200:201], np.array([10]), [10])
    assert float(method.penalty_) == before
    assert method.scores(sample.test_x[:2]).shape == (2, 11)


@pytest.mark.parametrize("width", [1.0, 0.5])
def test_gkeal_is_ridge_on_gaussian_kernels_with_few_shots_too(width: float, sample: FeatureSet) -> None:
    few = np.concatenate([np.flatnonzero(sample.train_y == c)[: 20 if c < 10 else 5] for c in range(20)])
    x, y = sample.train_x[few], sample.train_y[few]  # ten classes of 20, then ten of 5 samples
    method = learn(GKEAL(expansion_size=48, gamma=0.1, width=width), x, y, phases=5)
    state = method.state().arrays
    centres, sigma = state["expansion.projection"].T, float(state["expansion.width"])
    pairs = np.linalg.norm(centres[:, None] - centres, axis=2)[np.triu_indices(48, 1)]
    np.testing.assert_allclose(sigma, width * np.median(pairs), rtol=0.01)  # torch takes the lower of two medians
    base = {row.tobytes() for row in x[y < 10].astype(np.float64)}
    assert all(centre.tobytes() in base for centre in centres)

    def kernels(rows: np.ndarray) -> np.ndarray:
        return np.exp(-((rows.astype(np.float64)[:, None] - centres) ** 2).sum(2) / (2 * sigma**2))

    left = kernels(x).T @ kernels(x) + 0.1 * np.eye(48)
    expected = kernels(sample.test_x) @ np.linalg.solve(left, kernels(x).T @ np.eye(20)[y])
    np.testing.assert_allclose(method.scores(sample.test_x), expected, atol=1e-9)
    assert not method.exemplar_free


def test_gkeal_cannot_have_more_centres_than_samples(sample: FeatureSet) -> None:
    with pytest.raises(InputError, match="40"):
        GKEAL(expansion_size=41).learn_rows(sample.train_x[:40], sample.train_y[:40], [0, 1])


@pytest.mark.parametrize(
    "make",
    [
        lambda: AIR(gamma=0.0),
        lambda: AIR(expansion_size=0),
        lambda: RanPAC(expansion_size=0),
        lambda: GKEAL(width=0.0),
        lambda: GKEAL(gamma=0.0),
    ],
)
def test_options_out_of_range_are_refused(make) -> None:
    with pytest.raises(InputError):
        make()
