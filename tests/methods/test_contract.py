"""What every registered method must do, on real features; and that the checks notice what does not."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch

from dsal.base.progress import Progress
from dsal.data import FeatureRows
from dsal.data.features.feature_set import FeatureSet
from dsal.errors import InputError
from dsal.files.schema import ANY_ARRAY
from dsal.files.tensors import load_tensors, save_tensors
from dsal.methods import METHODS, Method, Phase, State, keeps
from dsal.methods.checks import CHECKS, check_method, checks, learn
from dsal.methods.closed_form.ncm import NCM

EXPANDED = ("ds-al", "acil", "air", "gkeal", "joint-ridge", "ranpac")
SMALL = {name: {"expansion_size": 64} for name in EXPANDED} | {"gkeal": {"expansion_size": 16}}
NAMES = [name for name in METHODS.names() if METHODS.get(name).inputs == "features"]
FORGETS = "sgd-head"  # what it is there to show


def rows(sample: FeatureSet, part: str) -> FeatureRows:
    x, y = getattr(sample, f"{part}_x"), getattr(sample, f"{part}_y")
    return FeatureRows(x[y < 10], torch.from_numpy(y[y < 10]))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("check", CHECKS)
def test_methods_pass_the_checks(name: str, check: str, sample: FeatureSet) -> None:
    data = {part: rows(sample, part) for part in ("train", "test")}
    every = {each.name: each for each in checks(METHODS.get(name), options=SMALL.get(name), **data)}
    every[check]()


@pytest.mark.parametrize("name", sorted(set(NAMES) - {FORGETS}))
def test_methods_learn_phase_by_phase(name: str, sample: FeatureSet) -> None:
    train, test = rows(sample, "train"), rows(sample, "test")
    method = METHODS.get(name)(**SMALL.get(name, {}))
    for k, classes in enumerate([range(5), *(range(c, c + 1) for c in range(5, 10))]):
        some = torch.nonzero(torch.isin(train.labels, torch.tensor(classes))).flatten()
        learn(method, Phase(k, classes, train.take(some)))
    assert (method.predict(test) == test.labels.numpy()).mean() > 0.5  # chance: 0.1


def test_methods_that_keep_samples_count_their_bytes(sample: FeatureSet) -> None:
    train = rows(sample, "train")
    for name in ("joint-ridge", "joint-logistic"):
        method = METHODS.get(name)(**SMALL.get(name, {}))
        assert not method.exemplar_free
        learn(method, Phase(0, range(10), train))
        assert method.state().nbytes >= train.x.nbytes


class Sound(NCM):
    """Nothing is wrong with it."""


class Positional(Sound):
    def __init__(self, metric: str = "euclidean") -> None:
        super().__init__(metric=metric)


class Forgetful(Sound):
    """Loses an option."""

    def __init__(self, *, metric: str = "euclidean", extra: int = 1) -> None:
        super().__init__(metric=metric)


class Endless(Sound):
    def _scores(self, X: Any) -> Any:
        return super()._scores(X) * np.inf


class Silent(Sound):
    def scores(self, samples: Any) -> Any:
        return super().scores(samples) if self.classes_seen else np.zeros((len(samples), 0))


class Backwards(Sound):
    def _scores(self, X: Any) -> Any:
        return -super()._scores(X)


class Contrary(Sound):
    def _predict(self, X: Any) -> Any:
        return self._scores(X).argmin(1)


class Social(Sound):
    """Looks at the other samples."""

    def _scores(self, X: Any) -> Any:
        return super()._scores(X - X.mean(0))


class Lax(Sound):
    """Takes any phase."""

    def learn(self, phase: Phase) -> Iterator[Progress]:
        return self._steps(phase)


class Unseeded(Sound):
    def _scores(self, X: Any) -> Any:
        return super()._scores(X) + 1e-12 * np.random.standard_normal((len(X), 1))


class Boasting(Sound):
    seed_varies = "everything"

    def __init__(self, *, metric: str = "euclidean", seed: int = 0) -> None:
        super().__init__(metric=metric)
        self.seed = seed


class Rounding(Sound):
    """Loses precision when it is saved."""

    def state(self) -> State:
        state = super().state()
        return State({name: array.astype(np.float32) for name, array in state.arrays.items()}, state.facts)


class Hoarding(Sound):
    learned = keeps(**Sound.learned, kept_=ANY_ARRAY)

    def __init__(self, *, metric: str = "euclidean") -> None:
        super().__init__(metric=metric)
        self.kept_ = np.zeros((0, 0))

    def _learn(self, X: Any, y: Any, classes: Any) -> None:
        super()._learn(X, y, classes)
        self.kept_ = X[:1].T.copy()


class Secretive(Sound):
    """Writes more than it says it keeps."""

    def save(self, path: Any) -> None:
        state = self.state()
        facts = {"kind": "method", "class": "Secretive", "facts": state.facts}
        save_tensors(path, {**state.arrays, "more": np.zeros(1000)}, facts)

    @classmethod
    def load(cls: Any, path: Any) -> Any:
        arrays, meta = load_tensors(path)
        return cls.from_state(State({name: arrays[name] for name in cls.learned}, meta["facts"]))


class Gradual(Sound):
    """Learns in steps, and forgets where it was."""

    def _steps(self, phase: Phase) -> Iterator[Progress]:
        yield Progress(1, 2)
        yield from super()._steps(phase)
        self.means_ = self.means_ * (1 + 1e-9)
        yield Progress(2, 2)
        self.means_ = self.means_ * (1 + 1e-9)


@pytest.mark.parametrize(
    ("broken", "check"),
    [
        (Positional, "options_are_keywords_with_defaults"),
        (Forgetful, "options_are_keywords_with_defaults"),
        (Endless, "classes_grow_with_every_phase"),
        (Silent, "nothing_is_scored_before_the_first_phase"),
        (Backwards, "one_phase_is_learned"),
        (Contrary, "one_phase_is_learned"),
        (Social, "a_sample_is_scored_alone_as_among_others"),
        (Lax, "phases_that_do_not_fit_are_refused"),
        (Unseeded, "the_same_seed_gives_the_same_bits"),
        (Boasting, "another_seed_changes_the_scores_if_it_says_so"),
        (Rounding, "saved_and_loaded_it_continues_bit_for_bit"),
        (Gradual, "a_state_of_any_step_continues_bit_for_bit"),
        (Hoarding, "an_exemplar_free_method_keeps_no_sample"),
        (Secretive, "the_size_of_a_state_is_that_of_its_file"),
    ],
)
def test_the_checks_notice(broken: type[Method], check: str) -> None:
    check_method(Sound)
    with pytest.raises(AssertionError, match=f"{broken.__name__} fails {check}"):
        check_method(broken)


def test_a_misfit_of_rows_and_labels_is_refused() -> None:
    with pytest.raises(InputError, match="as many labels"):
        FeatureRows(np.zeros((2, 3), dtype=np.float32), torch.zeros(1, dtype=torch.int64))
