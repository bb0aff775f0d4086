"""``gamma="auto"`` and ``compensation="auto"``: the model that a user would get with these numbers given by hand."""

from pathlib import Path

import numpy as np
import pytest
from sklearn.base import clone

from dsal import DSALClassifier
from dsal.analytic.tuning import GAMMA_ROWS, GAMMAS
from dsal.base.options import COMPENSATION
from dsal.data.features.feature_set import FeatureSet
from dsal.errors import InputError

Rows = tuple[np.ndarray, np.ndarray]
PHASES = ((0, 50), (50, 75), (75, 100))


@pytest.fixture(scope="module")
def phases(sample: FeatureSet) -> list[Rows]:
    chosen = [(sample.train_y >= start) & (sample.train_y < stop) for start, stop in PHASES]
    return [(sample.train_x[rows].astype(np.float64), sample.train_y[rows]) for rows in chosen]


def learned(phases: list[Rows], **options: object) -> DSALClassifier:
    model = DSALClassifier(expansion_size=64, **options)
    for x, y in phases:
        model.partial_fit(x, y)
    return model


@pytest.fixture(scope="module")
def auto(phases: list[Rows]) -> DSALClassifier:
    return learned(phases, gamma="auto", compensation="auto")


def test_the_model_is_that_of_the_numbers_given_by_hand(
    auto: DSALClassifier, phases: list[Rows], sample: FeatureSet
) -> None:
    by_hand = learned(phases, gamma=auto.gamma_, compensation=auto.compensation_)
    assert auto.gamma_ in GAMMAS
    assert 0.1 < auto.compensation_ < 3
    assert (by_hand.gamma_, by_hand.compensation_) == (auto.gamma_, auto.compensation_)
    assert (auto.coef_main_ == by_hand.coef_main_).all()
    assert (auto.coef_comp_ == by_hand.coef_comp_).all()
    assert (auto.logits(sample.test_x) == by_hand.logits(sample.test_x)).all()


def test_the_ratio_explains_the_errors_of_rows_left_out(phases: list[Rows]) -> None:
    x, y = phases[0][0][::40], phases[0][1][::40]  # so few that all of them are left out in turn
    assert len(y) <= 25
    x, y = x[:16], y[:16]
    model = DSALClassifier(expansion_size=64, compensation="auto").fit(x, y)
    main, both = (model.set_params(compensation=c).loo_logits(x, y) for c in (0.0, 1.0))
    errors, correction = (y[:, None] == model.classes_) - main, both - main
    expected = (errors * correction).sum() / (correction**2).sum()
    assert model.set_params(compensation="auto").compensation_ == pytest.approx(max(expected, 0.0), rel=1e-9)


def test_the_first_phase_has_no_say_once_there_are_others(phases: list[Rows]) -> None:
    """The formula, over the later phases; these so small that every row is left out in turn."""
    model = DSALClassifier(expansion_size=64, compensation="auto").partial_fit(*phases[0])
    explained = energy = 0.0
    for x, y in ((x[:16], y[:16]) for x, y in phases[1:]):
        model.partial_fit(x, y)
        chosen = model.compensation_
        main, both = (model.set_params(compensation=c).loo_logits(x, y) for c in (0.0, 1.0))
        explained += (((y[:, None] == model.classes_) - main) * (both - main)).sum()
        energy += ((both - main) ** 2).sum()
        assert chosen == pytest.approx(max(explained / energy, 0.0), rel=1e-6)
        assert chosen > 0
        model.set_params(compensation="auto")


def test_the_ratio_wins_over_none(auto: DSALClassifier, sample: FeatureSet) -> None:
    chosen = auto.score(sample.test_x, sample.test_y)
    main = clone(auto).set_params(compensation=0.0)
    main.__dict__.update({**auto.__dict__, "compensation": 0.0})
    assert chosen > main.score(sample.test_x, sample.test_y) + 0.02


def test_the_ratio_follows_the_phases_and_gamma_stays(phases: list[Rows]) -> None:
    model, ratios, gammas = DSALClassifier(expansion_size=64, gamma="auto", compensation="auto"), [], set()
    for x, y in phases:
        model.partial_fit(x, y)
        ratios.append(model.compensation_)
        gammas.add(model.gamma_)
    assert len(set(ratios)) == 3
    assert len(gammas) == 1


def test_batches_in_any_order_choose_the_same(auto: DSALClassifier, phases: list[Rows]) -> None:
    model = DSALClassifier(expansion_size=64, gamma="auto", compensation="auto")
    for x, y in phases:
        order = np.random.RandomState(1).permutation(len(y))
        model.partial_fit([(x[rows], y[rows]) for rows in np.array_split(order, 7)])
    assert model.gamma_ == auto.gamma_
    assert model.compensation_ == pytest.approx(auto.compensation_, rel=1e-6)


@pytest.mark.parametrize("learning", [True, False])
def test_a_file_keeps_what_was_chosen(auto: DSALClassifier, sample: FeatureSet, tmp_path: Path, learning: bool) -> None:
    auto.save(tmp_path / "model", learning=learning)
    loaded = DSALClassifier.load(tmp_path / "model")
    assert loaded.get_params()["gamma"] == loaded.get_params()["compensation"] == "auto"
    assert (loaded.gamma_, loaded.compensation_) == (auto.gamma_, auto.compensation_)
    assert (loaded.predict(sample.test_x) == auto.predict(sample.test_x)).all()


def test_a_loaded_model_goes_on_choosing(auto: DSALClassifier, phases: list[Rows], tmp_path: Path) -> None:
    learned(phases[:2], gamma="auto", compensation="auto").save(tmp_path / "model")
    loaded = DSALClassifier.load(tmp_path / "model").partial_fit(*phases[2])
    assert loaded.compensation_ == auto.compensation_


def test_merged_models_choose_from_the_rows_of_both(phases: list[Rows]) -> None:
    one, other = (learned([phase], gamma=0.1, compensation="auto") for phase in phases[:2])
    low, high = sorted((one.compensation_, other.compensation_))
    assert low < one.merge(other).compensation_ < high


def test_switched_on_late_it_begins_with_the_papers_value(phases: list[Rows]) -> None:
    model = learned(phases[:1], compensation=0.3)
    model.set_params(compensation="auto")
    assert model.compensation_ == COMPENSATION
    assert model.partial_fit(*phases[1]).compensation_ != COMPENSATION


@pytest.mark.parametrize("gamma", [10.0, "auto"])
def test_gammas_are_the_least_that_answer_as_well_as_the_best(phases: list[Rows], gamma: float | str) -> None:
    """The rule once more, with the models of all gammas solved one by one."""
    x, y = phases[0][0][::3], phases[0][1][::3]
    assert 256 < len(y) <= GAMMA_ROWS  # so all of them are left out in turn
    model = DSALClassifier(expansion_size=64, gamma=gamma, gamma_comp="auto").fit(x, y)
    z, targets = x @ model.projection_, (y[:, None] == model.classes_).astype(float)

    def left_out(rows: np.ndarray, targets: np.ndarray, gamma: float) -> np.ndarray:
        hat = rows @ np.linalg.solve(rows.T @ rows + gamma * np.eye(64), rows.T)
        h = np.diag(hat)[:, None]
        return (hat @ targets - h * targets) / (1 - h)

    def chosen(outputs: dict[float, np.ndarray]) -> float:
        wrong = {gamma: model.classes_[logits.argmax(1)] != y for gamma, logits in outputs.items()}
        best = min(wrong.values(), key=np.sum).astype(int)
        return min(
            gamma for gamma in GAMMAS if np.sum(wrong[gamma] - best) <= np.sqrt(np.sum(wrong[gamma] != best))
        )  # fmt: skip

    relu, tanh = np.maximum(z, 0.0), np.tanh(z)
    if gamma == "auto":
        assert model.gamma_ == chosen({gamma: left_out(relu, targets, gamma) for gamma in GAMMAS})
    main, residue = left_out(relu, targets, model.gamma_), targets - relu @ model.coef_main_
    both = {gamma: main + COMPENSATION * left_out(tanh, residue, gamma) for gamma in GAMMAS}
    assert model.gamma_comp_ == chosen(both)
    by_hand = DSALClassifier(expansion_size=64, gamma=model.gamma_, gamma_comp=model.gamma_comp_).fit(x, y)
    assert (model.coef_comp_ == by_hand.coef_comp_).all()


def test_a_file_keeps_gamma_of_the_compensation(phases: list[Rows], tmp_path: Path) -> None:
    model = learned(phases[:2], gamma_comp="auto")
    model.save(tmp_path / "model")
    loaded = DSALClassifier.load(tmp_path / "model")
    assert loaded.gamma_comp_ == model.gamma_comp_ != model.gamma_
    assert (loaded.partial_fit(*phases[2]).coef_comp_ == model.partial_fit(*phases[2]).coef_comp_).all()


@pytest.mark.parametrize("options", [{"gamma": "Auto"}, {"compensation": "best"}, {"gamma_comp": "Auto"}])
def test_other_words_are_refused(phases: list[Rows], options: dict[str, str]) -> None:
    with pytest.raises(InputError, match=next(iter(options))):
        learned(phases[:1], **options)
