"""Statistics of novelty against slow, obvious computations, and that they tell known classes from new ones."""

from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.metrics import roc_auc_score

from dsal import DSALClassifier, InputError
from dsal.data.features import FeatureSet
from dsal.images.novelty import ClassStatistics, Usual, _Whitening

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


def test_leaving_one_out(rows: Rows) -> None:
    """Against real removal of the row, with shrinkage and degrees of freedom held as they were."""
    x, y = rows
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
        expected = min(step @ near @ step for step in steps) - centre @ far @ centre
        assert found[row] == pytest.approx(expected / x.shape[1], rel=1e-6)


def test_a_class_of_one_image_has_nothing_to_be_left_to(rows: Rows) -> None:
    x, y = rows
    x, y = np.concatenate([x[y < 7], x[y == 7][:1]]), np.append(y[y < 7], 7)
    found = of(x, y).loo_distances(x, y)
    assert np.isnan(found[-1])
    assert np.isfinite(found[:-1]).all()


def test_statistics_add_and_subtract(rows: Rows) -> None:
    x, y = rows
    first = y < 5
    both = of(x, y)
    assert close(of(x[first], y[first]).plus(x[~first], y[~first], 8), both)
    mapped = ClassStatistics.nothing(20).plus(x[~first], y[~first] - 5, 3)
    assert close(ClassStatistics.nothing(20).plus(x[first], y[first], 5).merged(mapped, np.array([5, 6, 7]), 8), both)
    less = both.plus(x[~first], y[~first], 8, sign=-1.0).kept(np.arange(5))
    assert close(less, ClassStatistics.nothing(20).plus(x[first], y[first], 5))


def test_nothing_to_compare_with() -> None:
    with pytest.raises(InputError, match="no images"):
        ClassStatistics.nothing(3).distances(np.zeros((1, 3)))
    assert np.isnan(Usual.nothing().novelty(np.zeros(2), np.zeros(2))).all()


def test_novelty_is_the_share_of_less_strange_images() -> None:
    logits, distances = np.linspace(0.2, 1.2, 1001), np.linspace(1.0, -1.0, 1001)  # from strange to usual
    usual = Usual.nothing().plus(logits, distances)
    shares = usual.novelty(logits, distances)
    assert (np.diff(shares) <= 0).all()
    np.testing.assert_allclose(shares, np.linspace(1, 0, 1001), atol=0.03)
    assert usual.novelty(np.array([-9.0]), np.array([99.0])) == 1.0
    halves = (
        Usual.nothing().plus(logits[:500], distances[:500]).merged(Usual.nothing().plus(logits[500:], distances[500:]))
    )
    assert np.array_equal(halves.counts, usual.counts)


def test_new_classes_look_strange(sample: FeatureSet) -> None:
    """Real features, learned in four phases: classes 0-39 known, 50-99 new to backbone and head."""
    classifier, usual = DSALClassifier(expansion_size=256, compensation=0.0), Usual.nothing()
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
