"""The temperature against a direct search, and that its sums are those of all rows."""

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax, softmax

from dsal import DSALClassifier
from dsal.classifier.calibration import DOUBT, GRID, MOST_ROWS, USUAL, Calibration, as_new, rows_wanted

Case = tuple[NDArray[np.float64], NDArray[np.int64], NDArray[np.float64]]


@pytest.fixture
def case() -> Case:
    """Logits (n x 4), true columns and weights; the logits are right most of the time."""
    random = np.random.default_rng(0)
    columns = random.integers(0, 4, 50)
    logits = random.normal(0.0, 1.0, (50, 4)) + 1.5 * np.eye(4)[columns]
    return logits, columns, random.uniform(0.5, 2.0, 50)


def loss(case: Case, t: float) -> float:
    """Cross-entropy with targets that give the true column 1 - DOUBT, and the others the rest."""
    logits, columns, weight = case
    targets = np.full(logits.shape, DOUBT / (logits.shape[1] - 1))
    targets[np.arange(len(logits)), columns] = 1 - DOUBT
    return float(-(weight[:, None] * targets * log_softmax(logits / t, axis=1)).sum())


def test_the_temperature_is_that_of_a_direct_search(case: Case) -> None:
    logits, columns, weight = case
    calibration = Calibration().plus(logits, columns, weight, total=weight.sum())
    assert calibration.losses == pytest.approx([loss(case, t) for t in GRID])
    found = minimize_scalar(
        lambda log: loss(case, float(np.exp(log))) + (log - np.log(USUAL)) ** 2, bracket=(-1.0, 1.0), tol=1e-10
    )
    assert calibration.temperature == pytest.approx(np.exp(found.x), rel=1e-3)  # neighbours on the grid differ by 6%


def test_the_grid() -> None:
    assert (GRID[0], GRID[-1], len(GRID)) == (pytest.approx(1e-3), pytest.approx(100.0), 201)
    assert np.diff(np.log(GRID)) == pytest.approx(np.full(200, np.log(1e5) / 200))


def test_rows_stand_for_their_phase(case: Case) -> None:
    logits, columns, weight = case
    whole = Calibration().plus(logits, columns, weight, total=weight.sum())
    tripled = Calibration().plus(logits, columns, weight, total=3 * weight.sum())
    assert tripled.losses == pytest.approx(3 * whole.losses)
    parts = [
        Calibration().plus(logits[s], columns[s], weight[s], total=weight[s].sum()) for s in (slice(20), slice(20, 50))
    ]
    assert parts[0].merged(parts[1]).losses == pytest.approx(whole.losses)
    on = parts[0].plus(logits[20:], columns[20:], weight[20:], total=weight[20:].sum())
    assert on.losses == pytest.approx(whole.losses)


def test_rows_without_a_value_are_left_out(case: Case) -> None:
    logits, columns, weight = case
    holed = logits.copy()
    holed[::5, 1] = np.nan
    rest = np.arange(50) % 5 > 0
    expected = Calibration().plus(logits[rest], columns[rest], weight[rest], total=7.0)
    assert Calibration().plus(holed, columns, weight, total=7.0).losses == pytest.approx(expected.losses)
    nothing = Calibration().plus(np.full((2, 4), np.nan), columns[:2], weight[:2], total=2.0)
    assert (nothing.losses.tolist(), nothing.temperature) == ([0.0] * 201, pytest.approx(USUAL))


def test_rows_that_are_always_right_do_not_make_scores_certain() -> None:
    """The likelihood alone would take the smallest T of the grid, and wrong answers to come would score 1.000."""
    logits = np.array([[3.0, 0.0], [2.0, 0.0]])
    calibration = Calibration().plus(logits, np.zeros(2, dtype=np.int64), np.ones(2), total=2e6)
    scores = softmax(logits / calibration.temperature, axis=1)[:, 0]
    assert 0.95 < scores.min() < scores.max() < 1 - DOUBT / 4


def test_no_score_claims_more_than_ninety_nine_percent() -> None:
    """Where all rows are right and alike, the score of each is 1 - DOUBT."""
    calibration = Calibration().plus(np.array([[3.0, 0.0]] * 4), np.zeros(4, dtype=np.int64), np.ones(4), total=4e6)
    assert softmax(np.array([3.0, 0.0]) / calibration.temperature)[0] == pytest.approx(0.99, abs=2e-4)


def test_one_class_speaks_for_no_temperature() -> None:
    calibration = Calibration().plus(np.array([[3.0], [2.0]]), np.zeros(2, dtype=np.int64), np.ones(2), total=2.0)
    assert (calibration.losses.tolist(), calibration.temperature) == ([0.0] * 201, pytest.approx(USUAL))


def test_tiny_logits_take_the_other_end_of_the_grid() -> None:
    calibration = Calibration().plus(np.array([[1e-3, 0.0]] * 2), np.zeros(2, dtype=np.int64), np.ones(2), total=2e6)
    assert calibration.temperature == pytest.approx(1e-3)


def test_rows_that_are_always_wrong_take_the_end_of_the_grid() -> None:
    calibration = Calibration().plus(np.array([[3.0, 0.0], [2.0, 0.0]]), np.ones(2, dtype=np.int64), np.ones(2), 2e6)
    assert calibration.temperature == pytest.approx(100.0)


def test_how_many_rows_are_looked_at() -> None:
    assert [rows_wanted(w) for w in (0.0, 1536.0, 1568.0, 2048.0, 1e9)] == [64, 64, 65, 80, MOST_ROWS]
    assert MOST_ROWS == 256


def test_a_left_out_row_is_judged_like_a_new_one() -> None:
    """The class of the row has 1 of 2 rows: its logit doubles, and half its variance goes. Other logits stay."""
    logits = np.array([[0.2, 0.1, 0.0], [0.4, 0.3, 0.0], [0.1, 0.0, 0.3]])
    ones, counts = np.ones(3), np.array([2.0, 2.0, 1.0])
    found = as_new(logits, np.array([0, 0, 2]), counts, ones, ones)
    assert found[:2, 0] == pytest.approx([0.6 - 0.2 / np.sqrt(2), 0.6 + 0.2 / np.sqrt(2)])
    assert found[:, 1].tolist() == logits[:, 1].tolist()
    assert np.isnan(found[2, 2])  # alone in its class


def test_with_two_rows_a_class_the_temperature_is_near_the_best() -> None:
    """Leave-one-out alone judges a class by its only other row, and finds scores that are far too low."""
    random = np.random.default_rng(0)
    means = random.normal(size=(12, 30))
    x, y = (np.repeat(means, 2, 0) + 1.2 * random.normal(size=(24, 30))), np.repeat(np.arange(12), 2)
    new, truth = (np.repeat(means, 50, 0) + 1.2 * random.normal(size=(600, 30))), np.repeat(np.arange(12), 50)
    model = DSALClassifier(expansion_size=256, gamma=10.0).fit(x, y)
    best, right = model.predict_proba(new).max(1).mean(), model.score(new, truth)
    assert abs(best - right) < 0.08


def test_few_rows_take_no_extreme_temperature() -> None:
    wrong = Calibration().plus(np.array([[0.3, 0.1]] * 2), np.ones(2, dtype=np.int64), np.ones(2), total=2.0)
    assert USUAL < wrong.temperature < 1.0
