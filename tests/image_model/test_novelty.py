"""Statistics of novelty against slow, obvious computations, and that they tell known classes from new ones."""

import warnings
from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.metrics import roc_auc_score

from dsal import DSALClassifier, InputError
from dsal.data.features.feature_set import FeatureSet
from dsal.image_model.learned_state import LearnedState
from dsal.image_model.novelty import ClassStatistics, _Whitening
from dsal.image_model.novelty_reference import (
    Expected,
    NoveltyReference,
    expected_distances,
    expected_logits,
    inverse_trace,
    mean_leverage,
    packed_trace,
)

Scatter = Callable[[ClassStatistics], NDArray[np.float64]]
Rows = tuple[NDArray[np.float64], NDArray[np.int64]]


@pytest.fixture
def rows(sample: FeatureSet) -> Rows:
    seen = sample.train_y < 8
    return sample.train_x[seen, :20].astype(np.float64), sample.train_y[seen]


def of(x: NDArray[np.float64], y: NDArray[np.int64]) -> ClassStatistics:
    return ClassStatistics.nothing(x.shape[1]).plus(x, y, 8)


def close(a: ClassStatistics, b: ClassStatistics) -> bool:
    return all(np.allclose(vars(a)[name], vars(b)[name], rtol=1e-10, atol=1e-8) for name in vars(a))


def shrunk(scatter: NDArray[np.float64], degrees: int, n: int) -> NDArray[np.float64]:
    d = len(scatter)
    rho, covariance = d / (n + d), scatter / degrees
    return np.linalg.inv((1 - rho) * covariance + rho * np.trace(covariance) / d * np.eye(d))


def test_distance_by_the_book(rows: Rows) -> None:
    x, y = rows
    n, d = x.shape
    means = np.stack([x[y == c].mean(0) for c in range(8)])
    within = shrunk(sum(np.cov(x[y == c].T) * (np.sum(y == c) - 1) for c in range(8)), n - 8, n)
    overall, mean = shrunk(np.cov(x.T) * (n - 1), n - 1, n), x.mean(0)
    expected = [min((r - m) @ within @ (r - m) for m in means) - (r - mean) @ overall @ (r - mean) for r in x]
    np.testing.assert_allclose(of(x, y).distances(x), np.array(expected) / d, rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(of(x, y).grown(9).distances(x), of(x, y).distances(x))  # a class without rows


def test_distance_in_float32(rows: Rows) -> None:
    x, y = rows
    single = of(x + 100.0, y).relative_distance.single()  # features far from zero lose nothing
    assert {part.dtype for part in vars(single).values()} == {np.dtype(np.float32)}
    found = single(np.float32(x + 100.0))
    assert found.dtype == np.float64
    np.testing.assert_allclose(found, of(x, y).distances(x), atol=1e-5 * np.abs(found).max())


@pytest.mark.parametrize("width", [20, 2])
def test_leaving_one_out(rows: Rows, width: int) -> None:
    """Against real removal of the row, with shrinkage and degrees of freedom held as they were."""
    x, y = rows[0][:, :width], rows[1]
    whole = of(x, y)

    def covariance(rest: ClassStatistics, white: _Whitening, scatter: Scatter) -> NDArray[np.float64]:
        held = white.root.T @ white.root - white.scale * scatter(whole)
        return np.linalg.inv(held + white.scale * scatter(rest))

    def within(of: ClassStatistics) -> NDArray[np.float64]:
        return of.products - (of.sums / of.counts[:, None]).T @ of.sums

    def overall(of: ClassStatistics) -> NDArray[np.float64]:
        return of.products - np.outer(of.sums.sum(0), of.sums.sum(0)) / of.counts.sum()

    found = whole.loo_distances(x, y)
    for row in range(0, len(x), 17):
        rest = whole.plus(x[row : row + 1], y[row : row + 1], 8, sign=-1.0)
        near, far = covariance(rest, whole._within, within), covariance(rest, whole._overall, overall)
        centre = x[row] - rest.sums.sum(0) / rest.counts.sum()
        steps = x[row] - rest.sums / rest.counts[:, None]
        squared = [step @ near @ step for step in steps]
        left_out = whole._within.loo_squared(x[row : row + 1], y[row : row + 1], whole.counts[y[row : row + 1]])
        np.testing.assert_allclose(left_out[0], squared, rtol=1e-6)  # to all means, not to its own alone
        expected = min(squared) - centre @ far @ centre
        assert found[row] == pytest.approx(expected / x.shape[1], rel=1e-6)


def test_a_class_of_one_image_has_nothing_to_be_left_to(rows: Rows) -> None:
    x, y = rows
    x, y = np.concatenate([x[y < 7], x[y == 7][:1]]), np.append(y[y < 7], 7)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # nothing is divided by zero on the way
        found = of(x, y).loo_distances(x, y)
    assert np.isnan(found[-1])
    assert np.isfinite(found[:-1]).all()
    renumbered = (y + 1) % 8  # the lone image's class is the first
    np.testing.assert_allclose(of(x, renumbered).loo_distances(x, renumbered), found, rtol=1e-8)


def test_statistics_add_and_subtract(rows: Rows) -> None:
    x, y = rows
    first = y < 5
    both = of(x, y)
    assert close(of(x[first], y[first]).plus(x[~first], y[~first], 8), both)
    mapped = ClassStatistics.nothing(20).plus(x[~first], y[~first] - 5, 3)
    assert close(ClassStatistics.nothing(20).plus(x[first], y[first], 5).merged(mapped, np.array([5, 6, 7]), 8), both)
    less = both.plus(x[~first], y[~first], 8, sign=-1.0).kept(np.arange(5))
    assert close(less, ClassStatistics.nothing(20).plus(x[first], y[first], 5))


def test_float32_rows_are_summed_in_float64(sample: FeatureSet) -> None:
    x, y = sample.train_x[:200, :20], np.zeros(200, dtype=np.int64)
    assert x.dtype == np.float32
    exact = ClassStatistics.nothing(20).plus(x.astype(np.float64), y, 1)
    np.testing.assert_array_equal(ClassStatistics.nothing(20).plus(x, y, 1).products, exact.products)


def test_nothing_to_compare_with() -> None:
    with pytest.raises(InputError, match="no images"):
        ClassStatistics.nothing(3).distances(np.zeros((1, 3)))
    assert np.isnan(NoveltyReference.nothing().novelty(np.zeros(2), np.zeros(2))).all()


def test_samples_of_the_classes_by_the_book(rows: Rows) -> None:
    """Normal about each mean, wider where it is of few rows; a class without rows has none, one of one row has."""
    x, y = rows
    kept = (y != 3) & ((y != 5) | (np.arange(len(y)) == np.flatnonzero(y == 5)[0]))
    x, y = x[kept], y[kept]
    filled = [c for c in range(8) if c != 3]
    means, counts = np.stack([x[y == c].mean(0) for c in filled]), np.array([np.sum(y == c) for c in filled])
    residues = np.concatenate([x[y == c] - mean for c, mean in zip(filled, means, strict=True)])
    covariance = np.linalg.inv(shrunk(residues.T @ residues, len(x) - 7, len(x)))
    noise = np.random.default_rng(0).standard_normal((7, 30, 20)) @ np.linalg.cholesky(covariance).T
    expected = [m + np.sqrt(1 + 1 / n) * z for m, n, z in zip(means, counts, noise, strict=True)]
    sampled, labels = of(x, y).sample(30)
    np.testing.assert_allclose(sampled, np.concatenate(expected), rtol=1e-8, atol=1e-8)
    assert labels.tolist() == np.repeat(filled, 30).tolist()


def ridge(rows: Rows, gamma: float) -> tuple[NDArray[np.float64], ...]:
    """X, Y, (G + gamma I)^-1 and W, with all the matrices that sums replace."""
    x, y = rows
    targets = np.eye(8)[y]
    inverse = np.linalg.inv(x.T @ x + gamma * np.eye(x.shape[1]))
    return x, targets, inverse, inverse @ x.T @ targets


def test_mean_leverage(rows: Rows) -> None:
    x, _, inverse, _ = ridge(rows, 3.0)
    exact = np.einsum("nd,de,ne->n", x, inverse, x).mean()
    assert mean_leverage(inverse_trace(lambda b: inverse @ b, 20), 20, 3.0, len(x)) == pytest.approx(exact, rel=0.1)
    assert mean_leverage(inverse_trace(lambda b: -b, 20), 20, 3.0, 1.0) == 0.99
    assert mean_leverage(inverse_trace(lambda b: b, 20), 20, 3.0, 1.0) == 0.0


def test_the_trace_from_a_packed_triangle(rows: Rows) -> None:
    _, _, inverse, _ = ridge(rows, 3.0)
    factor = np.linalg.cholesky(np.linalg.inv(inverse)).T
    packed = np.concatenate([factor[: column + 1, column] for column in range(20)])
    assert packed_trace(packed, 20) == pytest.approx(inverse_trace(lambda b: inverse @ b, 20), rel=1e-10)


def test_expected_logits_are_those_of_rows_left_out(rows: Rows) -> None:
    """The means and the covariance that enter, by the rows themselves; and the largest of normal logits."""
    x, targets, _, weights = ridge(rows, 3.0)
    y, leverage = rows[1], 0.25
    fitted, counts = x @ weights, np.bincount(rows[1]).astype(float)
    left_out = (fitted - leverage * targets) / (1 - leverage)
    means = np.stack([left_out[y == c].mean(0) for c in range(8)])
    residues = left_out - means[y]
    covariance = residues.T @ residues / (len(y) - 8)
    found = expected_logits(targets.T @ x @ weights, weights.T @ weights, counts, 3.0, leverage)
    random = np.random.default_rng(1)
    largest = np.stack([random.multivariate_normal(mean, covariance, 20_000).max(1) for mean in means])
    np.testing.assert_allclose(found[:, 0], largest.mean(1), atol=0.25 * largest.std(1).max())
    np.testing.assert_allclose(found[:, 1], largest.std(1), rtol=0.2)


def test_expected_distances(rows: Rows) -> None:
    statistics = of(*rows)
    x, columns = statistics.sample(20)
    distances = statistics.distances(x)
    found = expected_distances(statistics)
    means = np.array([distances[columns == c].mean() for c in range(8)])
    np.testing.assert_allclose(found[:, 0], means)
    np.testing.assert_allclose(found[:, 1], np.sqrt(np.mean((distances - means[columns]) ** 2)))
    grown = expected_distances(statistics.grown(9))  # a class without rows
    np.testing.assert_allclose(grown[:8], found)
    assert grown[8, 0] == 0.0


def test_the_reference_follows_the_model() -> None:
    """Scores measured under one model are those of another that expects other means and spreads."""
    random = np.random.default_rng(0)
    first, second = random.normal(0.0, 1.5, 5000), random.normal(-3.0, 6.0, 5000)
    columns = np.arange(5000) % 2

    def expects(means: list[float], spreads: list[float], at: list[float], wide: list[float]) -> Expected:
        return Expected(np.array([means, spreads]).T, np.array([at, wide]).T)

    then, now = (
        expects([0.9, 0.8], [0.05, 0.1], [-0.3, -0.2], [0.01, 0.02]),
        expects([0.6, 0.4], [0.1, 0.15], [-0.5, 0.3], [0.02, 0.02]),
    )

    def scores(model: Expected) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        logits = model.logits[columns, 0] + model.logits[columns, 1] * first
        return logits, model.distances[columns, 0] + model.distances[columns, 1] * second

    counts = np.array([2500.0, 2500.0])
    learned = NoveltyReference.nothing().measured(*scores(then), columns, then).renewed(then, counts)
    moved = learned.renewed(now, counts)
    assert moved.counts.sum() == pytest.approx(5000)
    for reference, model in ((learned, then), (moved, now)):
        assert (reference.novelty(*scores(model)) > 0.95).mean() == pytest.approx(0.05, abs=0.015)
    assert (learned.novelty(*scores(now)) > 0.95).mean() > 0.5  # what was measured earlier is no reference
    again = NoveltyReference.from_arrays(**learned.arrays())
    assert np.array_equal(again.shape, learned.shape)
    assert not NoveltyReference.from_arrays(learned.counts).shape.any()  # a file of an earlier version
    half = columns == 0
    apart = [
        NoveltyReference.nothing().measured(*(v[some] for v in scores(then)), columns[some], then)
        for some in (half, ~half)
    ]
    np.testing.assert_array_equal(apart[0].merged(apart[1]).renewed(now, counts).counts, moved.counts)
    unlearned = NoveltyReference.nothing().renewed(now, counts)  # nothing measured: the shape of other photographs
    assert unlearned.counts.sum() == pytest.approx(5000)
    assert not unlearned.shape.any()


def test_values_that_are_not_finite_are_not_measured() -> None:
    expected = Expected(np.array([[0.5, 0.1]]), np.array([[0.0, 0.0]]))
    strange = np.array([np.nan, 0.5])
    measured = NoveltyReference.nothing().measured(strange, np.array([0.0, 0.0]), np.zeros(2, np.int64), expected)
    assert measured.shape.sum() == 1.0
    assert measured.shape[80, 80] == 1.0  # 0 standard deviations off, in both


@pytest.mark.parametrize("arrival", ["phases", "merged"])
def test_false_unknowns_do_not_depend_on_the_arrival(sample: FeatureSet, arrival: str) -> None:
    """Forty classes at once, in four lessons or merged from two models: about as many known images are flagged."""

    def state() -> LearnedState:
        return LearnedState(DSALClassifier(256, 100.0), sample.train_x.shape[1])

    added_up = NoveltyReference.nothing()  # what was measured when each class was taught

    def learn(model: LearnedState, classes: list[int]) -> None:
        nonlocal added_up
        rows = np.flatnonzero(np.isin(sample.train_y, classes))
        labels = np.array([f"{c:02}" for c in sample.train_y[rows]])
        model.learn(sample.train_x[rows], labels, [None] * len(rows))
        logits = model._main_stream().loo_logits(sample.train_x[rows], labels).max(1)
        columns = np.searchsorted(model.classes, labels)
        added_up = added_up.plus(logits, model.statistics.loo_distances(sample.train_x[rows], columns))

    def flagged(model: LearnedState, reference: NoveltyReference) -> float:
        x = sample.test_x[sample.test_y < 40]
        novelty = reference.novelty(model._main_stream().logits(x).max(1), model.statistics.distances(x))
        return float((novelty > 0.95).mean())

    whole, part, other = state(), state(), state()
    learn(whole, list(range(40)))
    added_up = NoveltyReference.nothing()
    if arrival == "phases":
        for first in range(0, 40, 10):
            learn(part, list(range(first, first + 10)))
    else:
        learn(part, list(range(20)))
        learn(other, list(range(20, 40)))
        part.merge(other)
    at_once = flagged(whole, whole.reference)
    assert abs(flagged(part, part.reference) - at_once) < 0.5 * abs(flagged(part, added_up) - at_once)


def test_novelty_is_the_share_of_less_strange_images() -> None:
    logits, distances = np.linspace(0.2, 1.2, 1001), np.linspace(1.0, -1.0, 1001)  # from strange to usual
    usual = NoveltyReference.nothing().plus(logits, distances)
    shares = usual.novelty(logits, distances)
    assert (np.diff(shares) <= 0).all()
    np.testing.assert_allclose(shares, np.linspace(1, 0, 1001), atol=0.03)
    assert usual.novelty(np.array([-9.0]), np.array([99.0])) == 1.0
    halves = NoveltyReference.nothing().plus(logits[:500], distances[:500]).plus(logits[500:], distances[500:])
    assert np.array_equal(halves.counts, usual.counts)


CELL = 0.025


def snapped(values: NDArray[np.float64], low: float) -> NDArray[np.float64]:
    """The nearest centres of the grid's cells, so that the grid rounds nothing."""
    return low + CELL * (np.floor((values - low) / CELL) + 0.5)


def test_the_score_by_the_book() -> None:
    """Both signs by their own mean and deviation, the distance with half the weight of the logit."""
    random = np.random.default_rng(0)
    logits = snapped(random.uniform(-0.5, 1.5, 60), -1.0)
    distances = snapped(random.uniform(-1.0, 1.7, 60), -2.0)
    usual = NoveltyReference.nothing().plus(logits, distances)
    expected = 0.5 * (distances - distances.mean()) / distances.std() - (logits - logits.mean()) / logits.std()
    np.testing.assert_allclose(usual.score(logits, distances), expected, rtol=1e-9, atol=1e-9)
    # Novelty of a known image: those below it, and half of those that are as strange, itself among them.
    shares = [(np.sum(expected < s - 1e-9) + 0.5 * np.sum(np.abs(expected - s) < 1e-9)) / 60 for s in expected]
    inner = np.argsort(expected)[1:-1]  # rounding decides on which side of the outermost ones an equal score is
    np.testing.assert_allclose(usual.novelty(logits, distances)[inner], np.array(shares)[inner], atol=1e-12)
    # Halfway between two of them in both signs: halfway between their shares.
    order = np.argsort(expected)[29:31]
    middle = usual.novelty(logits[order].mean(keepdims=True), distances[order].mean(keepdims=True))
    assert middle[0] == pytest.approx(np.mean(np.array(shares)[order]))
    assert usual.novelty(np.array([1.9]), np.array([-1.9])) == 0.0
    assert usual.novelty(np.array([-0.9]), np.array([1.9])) == 1.0


def test_weights_of_cells_count() -> None:
    logits, distances = snapped(np.array([0.1, 0.5, 0.9]), -1.0), snapped(np.array([1.0, 0.0, -1.0]), -2.0)
    usual = NoveltyReference.nothing().plus(logits.repeat([1, 3, 2]), distances.repeat([1, 3, 2]))
    assert usual.novelty(logits, distances)[1] == pytest.approx((2 + 3 / 2) / 6)


def test_images_that_are_all_alike_have_the_spread_of_a_cell() -> None:
    logits, distances = snapped(np.full(3, 0.4), -1.0), snapped(np.full(3, 0.2), -2.0)
    usual = NoveltyReference.nothing().plus(logits, distances)
    score = usual.score(logits + np.array([0.0, 0.0, 0.05]), distances + np.array([0.0, 0.05, 0.0]))
    np.testing.assert_allclose(score, [0.0, 0.5 * 0.05 / CELL, -0.05 / CELL], atol=1e-9)


def test_the_outer_cells_are_open_and_nan_is_left_out() -> None:
    edges = np.linspace(-1.0, 2.0, 121)
    logits = np.array([-9.0, -1.0, edges[40], 1.99, 2.0, 9.0, np.nan, 0.0])
    distances = np.array([-9.0, -2.0, -9.0, 9.0, 2.0, 9.0, 0.0, np.nan])
    counts = NoveltyReference.nothing().plus(logits, distances).counts
    assert counts.shape == (120, 160)
    assert {(r, c): counts[r, c] for r, c in zip(*np.nonzero(counts), strict=True)} == {
        (0, 0): 2.0,
        (40, 0): 1.0,  # an edge belongs to the cell above it
        (119, 159): 3.0,
    }


def test_one_image_a_class(rows: Rows) -> None:
    """No scatter within classes: distances are plain; and one row alone is no covariance at all."""
    x = rows[0][:2]
    d = x.shape[1]
    statistics = ClassStatistics.nothing(d).plus(x, np.array([0, 1]), 2)
    centre, difference = x.mean(0), x[0] - x[1]
    overall = shrunk(np.outer(difference, difference) / 2, 1, 2)
    probe = rows[0][5]
    expected = min(((probe - r) ** 2).sum() for r in x) - (probe - centre) @ overall @ (probe - centre)
    assert statistics.distances(probe[None])[0] == pytest.approx(expected / d)
    far = [(r - centre) @ overall @ (r - centre) for r in x]
    np.testing.assert_allclose(statistics.distances(x), -np.array(far) / d)  # no distance to their own means
    alone = ClassStatistics.nothing(d).plus(x[:1], np.array([0]), 1)
    assert alone.distances(probe[None])[0] == pytest.approx(0.0, abs=1e-9)


def test_leaving_one_out_of_two(rows: Rows) -> None:
    """A class of two rows keeps the other one as its mean; classes without rows are passed over."""
    x, y = rows
    some = np.concatenate([np.flatnonzero(y == c)[:2] for c in (1, 3, 6)])
    x, y = x[some], y[some]
    whole = of(x, y)
    white = whole._within
    inverse = np.linalg.inv(white.root.T @ white.root - white.scale * np.outer(x[0] - x[1], x[0] - x[1]) / 2)
    means = np.stack([x[1], x[2:4].mean(0), x[4:6].mean(0)])
    near = min((x[0] - m) @ inverse @ (x[0] - m) for m in means)
    rest, overall = x[1:].mean(0), whole._overall
    step = x[0] - x.mean(0)
    far = np.linalg.inv(overall.root.T @ overall.root - overall.scale * 6 / 5 * np.outer(step, step))
    expected = near - (x[0] - rest) @ far @ (x[0] - rest)
    assert whole.loo_distances(x, y)[0] == pytest.approx(expected / x.shape[1], rel=1e-6)


def test_a_class_without_its_rows(rows: Rows) -> None:
    """Its mean leaves exactly; its scatter is taken to be the average one, so the covariance within stays."""
    x, y = rows
    x, y = x[y != 6], y[y != 6]  # a class without rows is no obstacle
    whole = of(x, y)
    less = whole.without_class(2)
    rest = of(x[y != 2], y[y != 2])
    np.testing.assert_array_equal(less.counts, np.delete(rest.counts, 2))
    np.testing.assert_allclose(less.sums, np.delete(rest.sums, 2, axis=0))

    def within(of: ClassStatistics) -> NDArray[np.float64]:
        filled = of.counts > 0
        return of.products - (of.sums[filled] / of.counts[filled, None]).T @ of.sums[filled]

    np.testing.assert_allclose(within(less) / less.counts.sum(), within(whole) / whole.counts.sum(), atol=1e-9)
    one = ClassStatistics.nothing(20).plus(
        np.concatenate([x[y == 0], x[y == 1][:1], x[y == 2][:1]]), np.array([0] * 20 + [1, 2]), 3
    )
    for column in (1, 2):  # classes of one row, which have no scatter
        left = one.without_class(column)
        np.testing.assert_allclose(within(left) / 21, within(one) / 22, atol=1e-9)
    empty = whole.without_class(6)
    np.testing.assert_allclose(empty.products, whole.products)
    assert len(empty.counts) == 7


def test_new_classes_look_strange(sample: FeatureSet) -> None:
    """Real features, learned in four phases: classes 0-39 known, 50-99 new to backbone and head."""
    classifier, usual = DSALClassifier(expansion_size=256, compensation=0.0), NoveltyReference.nothing()
    statistics = ClassStatistics.nothing(sample.train_x.shape[1])
    for start in range(0, 40, 10):
        phase = (sample.train_y >= start) & (sample.train_y < start + 10)
        x, y = sample.train_x[phase], sample.train_y[phase]
        classifier.partial_fit(x, y)
        statistics = statistics.plus(x, y, start + 10)
        usual = usual.plus(classifier.loo_logits(x, y).max(1), statistics.loo_distances(x, y))
    known, new = sample.test_x[sample.test_y < 40], sample.test_x[sample.test_y >= 50]
    novelty = [usual.novelty(classifier.logits(x).max(1), statistics.distances(x)) for x in (known, new)]
    truth = np.repeat([0, 1], [len(known), len(new)])
    assert roc_auc_score(truth, np.concatenate(novelty)) > 0.65
    assert (novelty[0] > 0.95).mean() < 0.25
