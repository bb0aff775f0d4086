"""What every registered method must do."""

from pathlib import Path

import numpy as np
import pytest

from dsal.data import Scenario
from dsal.data.features import FeatureSet
from dsal.errors import InputError
from dsal.methods import METHODS, Method, State

EXPANDED = ("ds-al", "acil", "air", "gkeal", "joint-ridge", "ranpac")
SMALL = {name: {"expansion_size": 64} for name in EXPANDED} | {"gkeal": {"expansion_size": 16}}
FORGETS = "sgd-head"  # what it is there to show
every_method = pytest.mark.parametrize("name", METHODS.names())


def make(name: str, **more: object) -> Method:
    return METHODS.get(name)(**SMALL.get(name, {}), **more)


def phases(sample: FeatureSet, classes: int, base: int, phases: int) -> list[tuple[np.ndarray, np.ndarray, range]]:
    """(X, y, classes) of each phase of a scenario over the first ``classes`` classes."""
    scenario = Scenario.deal(classes, phases=phases, base=base)
    inside = np.flatnonzero(sample.train_y < classes)
    x, y = sample.train_x[inside], sample.train_y[inside]
    rows = [scenario.phase_rows(y, k) for k in range(phases + 1)]
    return [(x[r], y[r], phase) for r, phase in zip(rows, scenario.phases, strict=True)]


@every_method
def test_classes_grow_one_by_one(name: str, sample: FeatureSet) -> None:
    method = make(name)
    assert method.classes_seen == 0
    for x, y, classes in phases(sample, 8, 3, 5):
        method.learn_rows(x, y, classes)
        assert method.classes_seen == classes.stop
        scores = method.scores(sample.test_x[:7])
        assert scores.shape == (7, classes.stop)
        assert np.isfinite(scores).all()


@every_method
def test_before_the_first_phase_there_is_nothing_to_say(name: str, sample: FeatureSet) -> None:
    with pytest.raises(InputError, match="nothing has been learned"):
        make(name).scores(sample.test_x)


@every_method
def test_it_learns(name: str, sample: FeatureSet) -> None:
    method = make(name)
    for part in phases(sample, 10, 10, 0) if name == FORGETS else phases(sample, 10, 5, 5):
        method.learn_rows(*part)
    rows = np.flatnonzero(sample.test_y < 10)
    hits = method.scores(sample.test_x[rows]).argmax(1) == sample.test_y[rows]
    assert hits.mean() > 0.5  # chance: 0.1


@every_method
def test_a_sample_is_scored_alone_as_among_others(name: str, sample: FeatureSet) -> None:
    method = make(name)
    for part in phases(sample, 8, 4, 2):
        method.learn_rows(*part)
    together = method.scores(sample.test_x[:20])
    alone = np.concatenate([method.scores(sample.test_x[i : i + 1]) for i in range(20)])
    np.testing.assert_allclose(alone, together, rtol=1e-9, atol=1e-9)
    assert method.scores(sample.test_x[:0]).shape == (0, 8)


@every_method
def test_the_first_phase_may_have_one_class(name: str, sample: FeatureSet) -> None:
    method = make(name)
    for part in phases(sample, 3, 1, 2):
        method.learn_rows(*part)
    assert method.scores(sample.test_x[:2]).shape == (2, 3)


@every_method
def test_returning_classes_are_learned_or_refused(name: str, sample: FeatureSet) -> None:
    method = make(name)
    (x, y, classes), *_ = phases(sample, 6, 4, 1)
    method.learn_rows(x, y, classes)
    before = method.scores(sample.test_x[:5])
    back = np.flatnonzero(y < 2)
    if method.takes_returning_classes:
        method.learn_rows(x[back], y[back], range(2))
        assert method.classes_seen == 4
    else:
        with pytest.raises(InputError, match="again"):
            method.learn_rows(x[back], y[back], range(2))
        np.testing.assert_array_equal(method.scores(sample.test_x[:5]), before)


@every_method
def test_same_seed_same_bits(name: str, sample: FeatureSet) -> None:
    first, second = make(name), make(name)
    for part in phases(sample, 8, 4, 2):
        first.learn_rows(*part)
        second.learn_rows(*part)
    np.testing.assert_array_equal(first.scores(sample.test_x), second.scores(sample.test_x))


@every_method
def test_another_seed_changes_what_it_says(name: str, sample: FeatureSet) -> None:
    if METHODS.get(name).seed_varies is None:
        pytest.skip("draws nothing")
    first, second = make(name, seed=0), make(name, seed=1)
    part, *_ = phases(sample, 8, 4, 2)
    first.learn_rows(*part)
    second.learn_rows(*part)
    assert (first.scores(sample.test_x) != second.scores(sample.test_x)).any()


@every_method
def test_saved_and_loaded_it_goes_on_bit_for_bit(name: str, sample: FeatureSet, tmp_path: Path) -> None:
    unbroken, stopped = make(name), make(name)
    *early, late = phases(sample, 9, 4, 3)
    for part in early:
        unbroken.learn_rows(*part)
        stopped.learn_rows(*part)
    stopped.save(tmp_path / "state")
    loaded = METHODS.get(name).load(tmp_path / "state")
    np.testing.assert_array_equal(loaded.scores(sample.test_x), unbroken.scores(sample.test_x))
    unbroken.learn_rows(*late)
    loaded.learn_rows(*late)
    np.testing.assert_array_equal(loaded.scores(sample.test_x), unbroken.scores(sample.test_x))


@every_method
def test_a_fresh_method_can_be_saved(name: str, sample: FeatureSet, tmp_path: Path) -> None:
    make(name).save(tmp_path / "state")
    part, *_ = phases(sample, 8, 4, 2)
    loaded, fresh = METHODS.get(name).load(tmp_path / "state"), make(name)
    loaded.learn_rows(*part)
    fresh.learn_rows(*part)
    np.testing.assert_array_equal(loaded.scores(sample.test_x), fresh.scores(sample.test_x))


@every_method
def test_an_exemplar_free_method_keeps_no_sample(name: str, sample: FeatureSet) -> None:
    method = make(name)
    for part in phases(sample, 8, 4, 4):
        method.learn_rows(*part)
    if not method.exemplar_free:
        pytest.skip("keeps samples, and says so")
    assert not contains_rows(method.state(), sample.train_x[sample.train_y < 8])


@every_method
def test_bytes_grow_with_samples_only_where_samples_are_kept(name: str, sample: FeatureSet, tmp_path: Path) -> None:
    few, many = make(name), make(name)
    for x, y, classes in phases(sample, 8, 4, 4):
        some = np.concatenate([np.flatnonzero(y == c)[:10] for c in classes])
        few.learn_rows(x[some], y[some], classes)
        many.learn_rows(x, y, classes)
    sizes = []
    for method in (few, many):
        method.save(tmp_path / "state")
        sizes.append((tmp_path / "state").stat().st_size)
        assert 0 <= sizes[-1] - method.state().nbytes < 2000  # the measure is the file, up to its header
    more = sizes[1] - sizes[0]
    assert abs(more) < 64 if method.exemplar_free or name == "gkeal" else more >= 80 * 64 * 4  # 80 rows of float32


def contains_rows(state: State, rows: np.ndarray) -> bool:
    """Whether a feature vector stands in some array of a state, along its rows or its columns."""
    known = {row.astype(np.float32).tobytes() for row in rows}
    width = rows.shape[1]
    for array in state.arrays.values():
        flat = np.atleast_2d(array)
        for lines in (flat, flat.T):
            if lines.shape[-1] == width and any(line.astype(np.float32).tobytes() in known for line in lines):
                return True
    return False


@every_method
@pytest.mark.parametrize(
    ("rows", "labels", "classes"),
    [
        (0, [], range(4, 5)),  # no samples
        (2, [4], range(4, 5)),  # lengths differ
        (1, [5], range(5, 6)),  # class 4 is left out
        (1, [5], range(4, 5)),  # a label outside the phase
        (2, [4, 5], [5, 4]),  # not ascending
    ],
)
def test_a_phase_that_does_not_fit_is_refused(
    name: str, rows: int, labels: list[int], classes: list[int], sample: FeatureSet
) -> None:
    method = make(name)
    part, *_ = phases(sample, 6, 4, 1)
    method.learn_rows(*part)
    before = method.scores(sample.test_x[:5])
    with pytest.raises(InputError):
        method.learn_rows(sample.train_x[:rows], np.array(labels, dtype=np.int64), classes)
    np.testing.assert_array_equal(method.scores(sample.test_x[:5]), before)
