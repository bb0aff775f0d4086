"""Methods made of class means and covariances, against scikit-learn and literal formulas."""

from collections.abc import Iterator

import numpy as np
import pytest
from sklearn.covariance import OAS
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.neighbors import NearestCentroid

from dsal.data import Scenario
from dsal.data.features.feature_set import FeatureSet
from dsal.errors import InputError, UnknownNameError
from dsal.methods import Method
from dsal.methods.closed_form.fecam import FeCAM
from dsal.methods.closed_form.kit.geometry import added_scatter, update_means
from dsal.methods.closed_form.ncm import NCM
from dsal.methods.closed_form.slda import SLDA

Part = tuple[np.ndarray, np.ndarray, range]


def parts(sample: FeatureSet, phases: int) -> Iterator[Part]:
    scenario = Scenario.deal(100, phases=phases)
    for k, classes in enumerate(scenario.phases):
        rows = scenario.phase_rows(sample.train_y, k)
        yield sample.train_x[rows], sample.train_y[rows], classes


def learn(method: Method, sample: FeatureSet, phases: int = 7) -> Method:
    for part in parts(sample, phases):
        method.learn_rows(*part)
    return method


def class_means(sample: FeatureSet) -> np.ndarray:
    return np.array([sample.train_x[sample.train_y == c].astype(np.float64).mean(0) for c in range(100)])


@pytest.mark.parametrize("cuts", [[1], [7, 8], [3, 10, 19]])
def test_moments_do_not_depend_on_the_cut(cuts: list[int]) -> None:
    rows = np.random.default_rng(0).normal(size=(20, 5)) + 3.0
    counts, means, scatter = np.zeros(0, dtype=np.int64), np.zeros((0, 5)), np.zeros((5, 5))
    for piece in np.split(rows, cuts):
        labels = np.zeros(len(piece), dtype=np.int64)
        scatter += added_scatter(piece, labels, 0, counts, means)
        counts, means = update_means(piece, labels, [0], counts, means)
    assert counts.tolist() == [20]
    np.testing.assert_allclose(means[0], rows.mean(0), atol=1e-13)
    np.testing.assert_allclose(scatter, 19 * np.cov(rows.T), atol=1e-11)


def test_a_class_without_samples_is_refused(sample: FeatureSet) -> None:
    with pytest.raises(InputError, match="class 1 of the phase has no samples"):
        NCM().learn_rows(sample.train_x[:3], np.zeros(3, dtype=np.int64), [0, 1])


def test_ncm_is_the_nearest_centroid(sample: FeatureSet) -> None:
    oracle = NearestCentroid().fit(sample.train_x.astype(np.float64), sample.train_y)
    predicted = learn(NCM(), sample).scores(sample.test_x).argmax(1)
    np.testing.assert_array_equal(predicted, oracle.predict(sample.test_x.astype(np.float64)))


def test_ncm_by_cosine(sample: FeatureSet) -> None:
    means, x = class_means(sample), sample.test_x[3].astype(np.float64)
    expected = [x @ m / np.linalg.norm(x) / np.linalg.norm(m) for m in means]
    np.testing.assert_allclose(learn(NCM(metric="cosine"), sample).scores(sample.test_x)[3], expected, atol=1e-12)
    with pytest.raises(UnknownNameError, match="cosine"):
        NCM(metric="cosin")


class Fixed(OAS):
    """A covariance that is known already, for scikit-learn's discriminant analysis."""

    def __init__(self, known: np.ndarray | None = None) -> None:
        super().__init__()
        self.known = known

    def fit(self, X: np.ndarray, y: object = None) -> "Fixed":
        self.covariance_ = self.known
        return self


def test_slda_is_linear_discriminant_analysis(sample: FeatureSet) -> None:
    method = learn(SLDA(shrinkage=0.1), sample)
    x, y, means = sample.train_x.astype(np.float64), sample.train_y, class_means(sample)
    base = y < 50
    start = OAS(assume_centered=True).fit(x[base] - means[y[base]]).covariance_
    later = x[~base] - means[y[~base]]
    covariance = (1000 * start + later.T @ later) / 2000
    np.testing.assert_allclose(method.covariance_, covariance, atol=1e-12)
    known = Fixed(0.9 * covariance + 0.1 * np.eye(64))
    oracle = LinearDiscriminantAnalysis(solver="lsqr", covariance_estimator=known).fit(x, y)
    expected = oracle.decision_function(sample.test_x.astype(np.float64)) - np.log(0.01)  # equal priors
    np.testing.assert_allclose(method.scores(sample.test_x), expected, atol=1e-8)


def literal_fecam(train: FeatureSet, x: np.ndarray, power: float, weight: float) -> np.ndarray:
    """FeCAM as its authors' code computes it, on non-negative features."""
    scores = []
    unit = (x**power).T / np.linalg.norm(x**power, axis=1)
    for label in range(100):
        rows = train.train_x[train.train_y == label].astype(np.float64)
        covariance = np.cov((rows**power).T)
        for _ in range(2):
            diagonal = np.mean(np.diag(covariance))
            off = covariance[~np.eye(64, dtype=bool)].mean()
            covariance = covariance + weight * diagonal * np.eye(64) + weight * off * (1 - np.eye(64))
        deviations = np.sqrt(np.diag(covariance))
        inverse = np.linalg.pinv(covariance / deviations[:, None] / deviations[None])
        mean = rows.mean(0) ** power
        away = unit.T - mean / np.linalg.norm(mean)
        scores.append(-(away @ inverse * away).sum(1))
    return np.array(scores).T


@pytest.mark.parametrize(("power", "weight"), [(0.5, 1.0), (1.0, 0.3)])
def test_fecam_follows_its_formulas(power: float, weight: float, sample: FeatureSet) -> None:
    method = learn(FeCAM(power=power, diagonal=weight, off_diagonal=weight), sample)
    expected = literal_fecam(sample, sample.test_x.astype(np.float64), power, weight)
    np.testing.assert_allclose(method.scores(sample.test_x), expected, atol=1e-9)


def test_fecam_takes_standardised_features_back_above_zero(sample: FeatureSet) -> None:
    x, y, classes = next(parts(sample, 5))
    mean, deviation = x.astype(np.float64).mean(0), x.astype(np.float64).std(0)
    z = (x - mean) / deviation
    lowest = z.min(0)
    standardised, lifted = FeCAM(), FeCAM()
    standardised.learn_rows(z, y, classes)
    lifted.learn_rows(z - lowest, y, classes)
    query = (sample.test_x[:50] - mean) / deviation
    assert (query < lowest).any()  # below the floor of phase 0: counts as 0
    expected = lifted.scores(np.maximum(query - lowest, 0.0))
    np.testing.assert_allclose(standardised.scores(query), expected, atol=1e-9)


def test_a_class_of_one_sample_has_no_covariance(sample: FeatureSet) -> None:
    method = FeCAM()
    method.learn_rows(sample.train_x[:1], np.zeros(1, dtype=np.int64), [0])
    distance = -method.scores(sample.train_x[1:2])[0, 0]
    a, b = (np.sqrt(row.astype(np.float64)) for row in sample.train_x[:2])
    expected = np.sum((a / np.linalg.norm(a) - b / np.linalg.norm(b)) ** 2)
    np.testing.assert_allclose(distance, expected, rtol=1e-10)


@pytest.mark.parametrize(
    "make",
    [
        lambda: FeCAM(power=0.0),
        lambda: FeCAM(power=1.5),
        lambda: FeCAM(diagonal=0.0),
        lambda: FeCAM(diagonal=1.0, off_diagonal=2.0),
        lambda: SLDA(shrinkage=0.0),
    ],
)
def test_options_out_of_range_are_refused(make) -> None:
    with pytest.raises(InputError):
        make()
