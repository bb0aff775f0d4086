"""Statistics of novelty against slow, obvious computations, and that they tell known classes from new ones."""

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.metrics import roc_auc_score

from dsal import DSALClassifier, InputError
from dsal.data.features import FeatureSet
from dsal.images.novelty import ClassStatistics, Usual

Rows = tuple[NDArray[np.float64], NDArray[np.int64]]


@pytest.fixture
def rows(sample: FeatureSet) -> Rows:
    seen = sample.train_y < 8
    return sample.train_x[seen, :20].astype(np.float64), sample.train_y[seen]


def of(x: NDArray[np.float64], y: NDArray[np.int64]) -> ClassStatistics:
    return ClassStatistics.nothing(x.shape[1]).plus(x, y, 8)


def close(a: ClassStatistics, b: ClassStatistics) -> bool:
    return all(np.allclose(vars(a)[name], vars(b)[name], rtol=1e-10, atol=1e-8) for name in vars(a))


def test_distance_by_the_book(rows: Rows) -> None:
    x, y = rows
    means = np.stack([x[y == c].mean(0) for c in range(8)])
    scatter = sum(np.cov(x[y == c].T) * (np.sum(y == c) - 1) for c in range(8))
    n, d = x.shape
    rho, covariance = d / (n + d), scatter / (n - 8)
    inverse = np.linalg.inv((1 - rho) * covariance + rho * np.trace(covariance) / d * np.eye(d))
    expected = [min((row - m) @ inverse @ (row - m) for m in means) / d for row in x]
    np.testing.assert_allclose(of(x, y).distances(x), np.log(expected), rtol=1e-8)


def test_leaving_one_out(rows: Rows) -> None:
    """Against real removal of the row, with shrinkage and degrees of freedom held as the docstring says."""
    x, y = rows
    whole = of(x, y)
    n, d = x.shape
    covariance_of = whole._whitening()
    floor = covariance_of.root.T @ covariance_of.root - covariance_of.scale * (
        whole.products - (whole.sums / whole.counts[:, None]).T @ whole.sums
    )
    found = whole.loo_distances(x, y)
    for row in range(0, n, 17):
        rest = whole.plus(x[row : row + 1], y[row : row + 1], 8, sign=-1.0)
        means = rest.sums / rest.counts[:, None]
        inverse = np.linalg.inv(floor + covariance_of.scale * (rest.products - means.T @ rest.sums))
        expected = min((x[row] - m) @ inverse @ (x[row] - m) for m in means) / d
        assert found[row] == pytest.approx(np.log(expected), rel=1e-6)


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
