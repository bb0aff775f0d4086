"""Methods that fit linear heads, against scikit-learn, torch and literal formulas."""

import numpy as np
import pytest
import torch
from scipy.optimize import check_grad
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.svm import LinearSVC

from dsal.data import Scenario
from dsal.data.features.feature_set import FeatureSet
from dsal.errors import InputError
from dsal.methods import Method
from dsal.methods.closed_form.ds_al import ACIL
from dsal.methods.closed_form.fetril import FeTrIL, FeTrILFC, translated
from dsal.methods.closed_form.ivoro import IVoroD, IVoroN, IVoroND, voronoi_head, voronoi_loss
from dsal.methods.closed_form.joint import JointLogistic, JointRidge
from dsal.methods.closed_form.ncm import NCM
from dsal.methods.closed_form.sgd_head import LinearTraining, SGDHead


def learn(method: Method, sample: FeatureSet, classes: int, phases: int) -> Method:
    """Half of the first ``classes`` classes, then the others."""
    scenario = Scenario.deal(classes, phases=phases)
    x, y = first(sample, classes)
    for k, group in enumerate(scenario.phases):
        rows = scenario.phase_rows(y, k)
        method.learn_rows(x[rows], y[rows], group)
    return method


def first(sample: FeatureSet, classes: int) -> tuple[np.ndarray, np.ndarray]:
    rows = np.flatnonzero(sample.train_y < classes)
    return sample.train_x[rows], sample.train_y[rows]


def unit(x: np.ndarray) -> np.ndarray:
    return x / np.linalg.norm(x, axis=1, keepdims=True)


def test_fetril_moves_the_nearest_new_class_onto_each_old_mean(sample: FeatureSet) -> None:
    x, y = first(sample, 6)
    x = x.astype(np.float64)
    means = np.array([x[y == c].mean(0) for c in range(6)])
    new = y >= 4
    rows, labels = translated(x[new], y[new], [4, 5], means)
    np.testing.assert_array_equal(np.bincount(labels), [20] * 6)
    for old in range(4):
        moved = rows[labels == old]
        donor = min((4, 5), key=lambda n: np.linalg.norm(means[n] - means[old]))
        np.testing.assert_allclose(moved.mean(0), means[old], atol=1e-12)
        np.testing.assert_allclose(moved, x[y == donor] - means[donor] + means[old], atol=1e-12)


@pytest.mark.parametrize("classes", [2, 3, 10])
def test_fetril_is_a_linear_svc_on_moved_features(classes: int, sample: FeatureSet) -> None:
    method = learn(FeTrIL(penalty=0.3), sample, classes, phases=1)
    x, y = first(sample, classes)
    base = (classes + 1) // 2
    means = np.array([x[y == c].astype(np.float64).mean(0) for c in range(classes)])
    rows, labels = translated(x[y >= base].astype(np.float64), y[y >= base], range(base, classes), means)
    oracle = LinearSVC(C=0.3, tol=1e-6, dual=False).fit(unit(rows), labels)
    decision = oracle.decision_function(unit(sample.test_x.astype(np.float64)))
    expected = np.stack([-decision, decision], axis=1) if classes == 2 else decision
    np.testing.assert_allclose(method.scores(sample.test_x), expected, atol=2e-3)


def test_sgd_is_that_of_torch(sample: FeatureSet) -> None:
    x, y = first(sample, 10)
    training = LinearTraining(learning_rate=0.1, epochs=3, weight_decay=5e-3)
    start = np.zeros((10, 65), dtype=np.float32)
    trained = training.run(x.astype(np.float64), y, start, np.random.RandomState(1))
    head = torch.nn.Linear(64, 10)
    torch.nn.init.zeros_(head.weight)
    torch.nn.init.zeros_(head.bias)
    optimiser = torch.optim.SGD(head.parameters(), lr=0.1, momentum=0.9, weight_decay=5e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, T_max=6)
    random = np.random.RandomState(1)
    for _ in range(3):
        for batch in torch.from_numpy(random.permutation(200)).split(128):
            optimiser.zero_grad()
            logits = head(torch.from_numpy(x)[batch])
            torch.nn.functional.cross_entropy(logits, torch.from_numpy(y)[batch]).backward()
            optimiser.step()
            schedule.step()
    np.testing.assert_allclose(trained[:, :-1], head.weight.detach().numpy(), atol=2e-5)
    np.testing.assert_allclose(trained[:, -1], head.bias.detach().numpy(), atol=2e-5)


def test_the_sgd_head_forgets_and_fetril_with_the_same_head_does_not(sample: FeatureSet) -> None:
    rows = np.flatnonzero(sample.test_y < 5)
    bare, helped = (
        (learn(method, sample, 10, phases=5).scores(sample.test_x[rows]).argmax(1) == sample.test_y[rows]).mean()
        for method in (SGDHead(), FeTrILFC(learning_rate=0.2))
    )
    assert bare < 0.1
    assert helped > 0.7


def test_ivoro_n_is_the_nearest_mean_of_unit_powers(sample: FeatureSet) -> None:
    x, y = first(sample, 10)
    powers = unit(x.astype(np.float64) ** 0.6)
    means = np.array([powers[y == c].mean(0) for c in range(10)])
    query = unit(sample.test_x.astype(np.float64) ** 0.6)
    expected = -((query[:, None] - means) ** 2).sum(2)
    np.testing.assert_allclose(learn(IVoroN(), sample, 10, 3).scores(sample.test_x), expected, atol=1e-12)


def test_a_local_head_is_a_voronoi_diagram_at_a_minimum(sample: FeatureSet) -> None:
    x, y = first(sample, 5)
    x = x.astype(np.float64)
    w = voronoi_head(x, y, 5, penalty=1e-3)
    targets = np.eye(5)[y]
    start = 2 * np.array([x[y == c].mean(0) for c in range(5)])
    value, gradient = voronoi_loss(w, x, targets, 1e-3)
    assert np.abs(gradient).max() < 1e-4
    assert value < voronoi_loss(start, x, targets, 1e-3)[0]
    error = check_grad(
        lambda flat: voronoi_loss(flat.reshape(5, 64), x, targets, 1e-3)[0],
        lambda flat: voronoi_loss(flat.reshape(5, 64), x, targets, 1e-3)[1].ravel(),
        0.1 * start.ravel(),
    )
    assert error < 1e-5
    query = sample.test_x.astype(np.float64)
    by_logits = (query @ w.T - (w**2).sum(1) / 4).argmax(1)
    by_distance = ((query[:, None] - w / 2) ** 2).sum(2).argmin(1)
    np.testing.assert_array_equal(by_logits, by_distance)


@pytest.mark.parametrize("cls", [IVoroD, IVoroND])
def test_nominees_are_ranked_by_distance(cls: type[Method], sample: FeatureSet) -> None:
    method = learn(cls(), sample, 10, phases=2)  # phases of 5, 3 and 2 classes
    x, y = first(sample, 10)

    def measured(rows: np.ndarray) -> np.ndarray:
        return unit(rows.astype(np.float64) ** 0.6) if cls is IVoroND else rows.astype(np.float64)

    means = np.array([measured(x[y == c]).mean(0) for c in range(10)])
    groups = [range(5), range(5, 8), range(8, 10)]
    heads = [voronoi_head(x[np.isin(y, g)].astype(float), y[np.isin(y, g)] - g[0], len(g), 1e-3) for g in groups]
    for row in sample.test_x[sample.test_y < 20]:
        query = row.astype(np.float64)
        nominees = [g[int((w @ query - (w**2).sum(1) / 4).argmax())] for g, w in zip(groups, heads, strict=True)]
        distance = [np.sum((measured(row[None])[0] - means[c]) ** 2) for c in range(10)]
        ranked = sorted(nominees, key=lambda c: distance[c])
        ranked += sorted(set(range(10)) - set(nominees), key=lambda c: distance[c])
        assert np.argsort(-method.scores(row[None])[0]).tolist() == ranked


def test_phases_of_one_class_leave_ivoro_d_the_nearest_mean(sample: FeatureSet) -> None:
    parts = [(sample.train_x[sample.train_y == c], np.full(20, c), [c]) for c in range(6)]
    divided, plain = IVoroD(), NCM()
    for part in parts:
        divided.learn_rows(*part)
        plain.learn_rows(*part)
    query = sample.test_x[:60]
    np.testing.assert_array_equal(divided.scores(query).argmax(1), plain.scores(query).argmax(1))


def test_joint_ridge_is_scikit_learns_and_acil_is_joint_ridge(sample: FeatureSet) -> None:
    joint = learn(JointRidge(expansion_size=128, gamma=2.0, seed=5), sample, 20, phases=4)
    recursive = learn(ACIL(expansion_size=128, gamma=2.0, seed=5), sample, 20, phases=4)
    np.testing.assert_allclose(joint.scores(sample.test_x), recursive.scores(sample.test_x), atol=1e-10)
    x, y = first(sample, 20)
    projection = np.random.RandomState(5).uniform(-1 / 8, 1 / 8, (64, 128))
    oracle = Ridge(alpha=2.0, fit_intercept=False).fit(np.maximum(x.astype(float) @ projection, 0), np.eye(20)[y])
    expected = oracle.predict(np.maximum(sample.test_x.astype(float) @ projection, 0))
    np.testing.assert_allclose(joint.scores(sample.test_x), expected, atol=1e-10)


@pytest.mark.parametrize("classes", [2, 10])
def test_joint_logistic_is_scikit_learns_wherever_it_began(classes: int, sample: FeatureSet) -> None:
    joint = learn(JointLogistic(penalty=0.1), sample, classes, phases=1)
    x, y = first(sample, classes)
    oracle = LogisticRegression(C=0.1, max_iter=1000, tol=1e-6).fit(x.astype(float), y)
    decision = oracle.decision_function(sample.test_x.astype(float))
    expected = np.stack([-decision, decision], axis=1) if classes == 2 else decision
    scores = joint.scores(sample.test_x)
    np.testing.assert_allclose(scores - scores.mean(1)[:, None], expected - expected.mean(1)[:, None], atol=2e-2)


@pytest.mark.parametrize(
    "make",
    [
        lambda: FeTrIL(penalty=0.0),
        lambda: FeTrILFC(epochs=0),
        lambda: SGDHead(learning_rate=0.0),
        lambda: SGDHead(weight_decay=-1.0),
        lambda: IVoroD(penalty=0.0),
        lambda: IVoroN(power=2.0),
        lambda: JointLogistic(penalty=-1.0),
        lambda: JointRidge(gamma=0.0),
    ],
)
def test_options_out_of_range_are_refused(make) -> None:
    with pytest.raises(InputError):
        make()
