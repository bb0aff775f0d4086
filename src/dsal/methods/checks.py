"""What every method must do, as checks that anyone can run on a method of one's own.

    from dsal.methods.checks import check_method

    check_method(MyMethod, options={"size": 16})

or one test for each: ``@pytest.mark.parametrize("check", checks(MyMethod), ids=lambda check: check.name)``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from inspect import Parameter, signature
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from dsal.data import FeatureRows, ImageData, Samples, Scenario
from dsal.errors import InputError
from dsal.hints import fit, keyword_hints, plain
from dsal.methods.contract import Method, Phase, State

if TYPE_CHECKING:
    from dsal.backbones import Backbone

CLASSES = 10


@dataclass(frozen=True, eq=False)
class Subject:
    """A method under test, with the samples it is tested on.

    Attributes:
        cls: the method.
        options: for its constructor: small sizes make the checks fast.
        train: ten classes, labelled 0 to 9, twenty samples or more of each.
        test: more samples of these classes.
        backbone: what a method on images starts from.
    """

    cls: type[Method]
    options: Mapping[str, Any]
    train: Samples
    test: Samples
    backbone: Backbone | None = None

    def make(self, **more: Any) -> Method:
        """A fresh method."""
        method = self.cls(**self.options, **more)
        if self.backbone is not None:
            method.start(self.backbone)
        return method

    def phases(self, classes: int, base: int, count: int) -> list[Phase]:
        """The first ``classes`` classes: ``base`` of them in phase 0, the others in ``count`` phases."""
        scenario = Scenario.deal(classes, phases=count, base=base)
        labels = self.train.labels
        rows = [torch.nonzero(torch.isin(labels, torch.tensor(list(group)))).flatten() for group in scenario.phases]
        return [Phase(k, scenario.phases[k], self.train.take(some)) for k, some in enumerate(rows)]

    @cached_property
    def probe(self) -> Samples:
        """Some test samples of all classes."""
        return self.test.take(torch.arange(0, len(self.test), max(len(self.test) // 20, 1)))

    def learned(self, *phases: Phase, **more: Any) -> Method:
        """A fresh method that has learned some phases."""
        method = self.make(**more)
        for phase in phases:
            learn(method, phase)
        return method


def learn(method: Method, phase: Phase) -> None:
    """Learn a phase to its end."""
    for _ in method.learn(phase):
        pass


@dataclass(frozen=True, eq=False)
class Check:
    """One thing that a method must do; calling it raises :class:`AssertionError` if the method does not."""

    name: str
    subject: Subject
    run: Callable[[Subject], None] = field(repr=False)

    def __call__(self) -> None:
        try:
            self.run(self.subject)
        except Exception as error:
            raise AssertionError(f"{self.subject.cls.__name__} fails {self.name}: {error}") from error


CHECKS: dict[str, Callable[[Subject], None]] = {}
"""All checks by name."""


def checks(
    cls: type[Method],
    *,
    options: Mapping[str, Any] | None = None,
    train: Samples | None = None,
    test: Samples | None = None,
    backbone: Backbone | None = None,
) -> Iterator[Check]:
    """Yield all checks of a method.

    Args:
        cls: the method.
        options: for its constructor: small sizes make the checks fast.
        train: ten classes, labelled 0 to 9, twenty samples or more of each; made up where not given.
        test: more samples of these classes, likewise.
        backbone: what a method on images starts from, if it needs one.
    """
    if train is None or test is None:
        train, test = _made_up(cls.inputs, 20, 0), _made_up(cls.inputs, 10, 1)
    subject = Subject(cls, dict(options or {}), train, test, backbone)
    yield from (Check(name, subject, run) for name, run in CHECKS.items())


def check_method(cls: type[Method], **how: Any) -> None:
    """Run all checks of a method; takes the arguments of :func:`checks`.

    Raises:
        AssertionError: the method fails a check, which the message names.
    """
    for check in checks(cls, **how):
        check()


def _check(run: Callable[[Subject], None]) -> Callable[[Subject], None]:
    CHECKS[run.__name__] = run
    return run


@_check
def options_are_keywords_with_defaults(subject: Subject) -> None:
    """Each is an attribute too, which a configuration file can hold."""
    hints, method = keyword_hints(subject.cls), subject.make()
    for name, parameter in signature(subject.cls).parameters.items():
        _require(parameter.kind is Parameter.KEYWORD_ONLY, f"option {name} must be a keyword-only argument")
        _require(parameter.default is not Parameter.empty, f"option {name} must have a default")
        _require(hasattr(method, name), f"option {name} must be an attribute of the method")
        value = getattr(method, name)
        _require(fit(name, plain(name, value), hints[name]) == value, f"option {name} is changed by a file: {value!r}")


@_check
def trials_begin_with_the_defaults(subject: Subject) -> None:
    defaults = {name: parameter.default for name, parameter in signature(subject.cls).parameters.items()}
    trials = subject.cls.trials
    _require(len(trials) > 0 and trials[0].items() <= defaults.items(), "the first trial must be the defaults")
    for trial in trials:
        subject.cls(**trial)


@_check
def classes_grow_with_every_phase(subject: Subject) -> None:
    method = subject.make()
    _require(method.classes_seen == 0, "a fresh method has seen no class")
    for phase in subject.phases(8, 3, 5):
        learn(method, phase)
        seen, scores = phase.classes[-1] + 1, method.scores(subject.probe)
        _require(method.classes_seen == seen, f"expected {seen} classes seen, got {method.classes_seen}")
        _require(scores.shape == (len(subject.probe), seen), f"expected scores of {seen} classes, got {scores.shape}")
        _require(bool(np.isfinite(scores).all()), "scores must be finite")


@_check
def nothing_is_scored_before_the_first_phase(subject: Subject) -> None:
    with _refused("scores before the first phase"):
        subject.make().scores(subject.probe)


@_check
def one_phase_is_learned(subject: Subject) -> None:
    method = subject.learned(*subject.phases(CLASSES, CLASSES, 0))
    right = float((method.predict(subject.test) == subject.test.labels.numpy()).mean())
    _require(right > 0.5, f"half of the test samples should be classified correctly, chance is 0.1; got {right:.2f}")


@_check
def the_same_seed_gives_the_same_bits(subject: Subject) -> None:
    first, second = (subject.learned(*subject.phases(8, 4, 2)) for _ in range(2))
    np.testing.assert_array_equal(first.scores(subject.probe), second.scores(subject.probe))


@_check
def predictions_are_the_largest_scores(subject: Subject) -> None:
    method = subject.learned(*subject.phases(8, 4, 2))
    np.testing.assert_array_equal(method.predict(subject.probe), method.scores(subject.probe).argmax(1))


@_check
def a_sample_is_scored_alone_as_among_others(subject: Subject) -> None:
    method, probe = subject.learned(*subject.phases(8, 4, 2)), subject.probe
    alone = [method.scores(probe.take(slice(row, row + 1))) for row in range(len(probe))]
    # On the scale of the scores themselves: a network works in float32.
    together = method.scores(probe)
    near = (1e-9 if subject.cls.inputs == "features" else 1e-4) * max(1.0, float(np.abs(together).max()))
    np.testing.assert_allclose(np.concatenate(alone), together, rtol=0, atol=near)


@_check
def no_samples_have_no_scores(subject: Subject) -> None:
    scores = subject.learned(*subject.phases(8, 4, 2)).scores(subject.probe.take(slice(0)))
    _require(scores.shape == (0, 8), f"expected scores of shape (0, 8), got {scores.shape}")


@_check
def the_first_phase_may_have_one_class(subject: Subject) -> None:
    scores = subject.learned(*subject.phases(3, 1, 2)).scores(subject.probe)
    _require(scores.shape == (len(subject.probe), 3), f"expected scores of 3 classes, got {scores.shape}")


@_check
def returning_classes_are_learned_or_refused(subject: Subject) -> None:
    first, *_ = subject.phases(6, 4, 1)
    method = subject.learned(first)
    before = method.scores(subject.probe)
    back = Phase(1, range(2), first.samples.take(torch.nonzero(first.samples.labels < 2).flatten()))
    if subject.cls.takes_returning_classes:
        learn(method, back)
        _require(method.classes_seen == 4, f"no class is new, yet {method.classes_seen} are seen instead of 4")
        return
    with _refused("a class that returns"):
        learn(method, back)
    np.testing.assert_array_equal(method.scores(subject.probe), before)


@_check
def phases_that_do_not_fit_are_refused(subject: Subject) -> None:
    method = subject.learned(subject.phases(6, 4, 1)[0])
    before = method.scores(subject.probe)
    for why, labels, classes in (
        ("no samples", [], [4]),
        ("a class left out", [5], [5]),
        ("a label outside of the phase", [5], [4]),
        ("classes that do not ascend", [4, 5], [5, 4]),
    ):
        samples = subject.train.take(slice(len(labels))).relabel(torch.tensor(labels, dtype=torch.int64))
        with _refused(why):
            learn(method, Phase(1, classes, samples))
        np.testing.assert_array_equal(method.scores(subject.probe), before)


@_check
def another_seed_changes_the_scores_if_it_says_so(subject: Subject) -> None:
    if subject.cls.seed_varies is None:
        return
    phase = subject.phases(8, 4, 2)[0]
    first, second = (subject.learned(phase, seed=seed).scores(subject.probe) for seed in (0, 1))
    _require(bool((first != second).any()), f"seed_varies says {subject.cls.seed_varies!r}, but seeds 0 and 1 agree")


@_check
def saved_and_loaded_it_continues_bit_for_bit(subject: Subject) -> None:
    *early, late = subject.phases(9, 4, 3)
    for phases in ((), early):
        unbroken, stopped = subject.learned(*phases), subject.learned(*phases)
        with TemporaryDirectory() as folder:
            stopped.save(Path(folder) / "state")
            loaded = subject.cls.load(Path(folder) / "state")
        for phase in (late,) if phases else early:
            learn(unbroken, phase)
            learn(loaded, phase)
        np.testing.assert_array_equal(loaded.scores(subject.probe), unbroken.scores(subject.probe))


@_check
def a_state_of_any_step_continues_bit_for_bit(subject: Subject) -> None:
    first, second = subject.phases(8, 4, 1)
    unbroken = subject.learned(first, second)
    steps = sum(1 for _ in subject.learned(first).learn(second))
    for stop in {0, steps // 2, steps - 1} - {-1}:
        method = subject.learned(first)
        for step, _ in enumerate(method.learn(second)):
            if step == stop:
                restored = subject.cls.from_state(_copied(method.state()))
                learn(restored, second)
                np.testing.assert_array_equal(restored.scores(subject.probe), unbroken.scores(subject.probe))
                break


@_check
def an_exemplar_free_method_keeps_no_sample(subject: Subject) -> None:
    phases = subject.phases(8, 4, 4)
    method = subject.learned(*phases)
    if not method.exemplar_free:
        return
    few = subject.make()
    for phase in phases:
        labels = phase.samples.labels
        rows = torch.cat([torch.nonzero(labels == c).flatten()[:10] for c in phase.classes])
        learn(few, Phase(phase.index, phase.classes, phase.samples.take(rows)))
    more = method.state().nbytes - few.state().nbytes
    _require(abs(more) < 64, f"it says that it keeps no samples, yet its state grows with their number by {more} bytes")
    _require(not _holds_samples(method.state(), phases), "it says that it keeps no samples, yet its state holds some")


@_check
def the_size_of_a_state_is_that_of_its_file(subject: Subject) -> None:
    method = subject.learned(*subject.phases(8, 4, 2))
    with TemporaryDirectory() as folder:
        method.save(Path(folder) / "state")
        header = (Path(folder) / "state").stat().st_size - method.state().nbytes
    _require(0 <= header < 2000 + 200 * len(method.state().arrays), f"the file has {header} bytes more than the state")


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise AssertionError(message)


@contextmanager
def _refused(what: str) -> Iterator[None]:
    try:
        yield
    except InputError:
        return
    raise AssertionError(f"{what} must raise an InputError")


def _copied(state: State) -> State:
    return State({name: array.copy() for name, array in state.arrays.items()}, dict(state.facts))


def _holds_samples(state: State, phases: list[Phase]) -> bool:
    """Whether a sample is a row or a column of some array of the state."""
    rows = [x.flatten(1).float().numpy() for phase in phases for x, _ in phase.samples.batches(1000)]
    known, width = {row.tobytes() for some in rows for row in some}, rows[0].shape[1]
    for array in (array for array in state.arrays.values() if array.size):
        flat: NDArray[Any] = np.atleast_2d(array)
        for lines in (flat.reshape(len(flat), -1), flat.reshape(len(flat), -1).T):
            if lines.shape[1] == width and any(line.astype(np.float32).tobytes() in known for line in lines):
                return True
    return False


def _made_up(inputs: str, each: int, seed: int) -> Samples:
    """Ten classes that are easy to tell apart, ``each`` samples of each: features (n, 12) or images (n, 3, 8, 8)."""
    images = inputs == "images"
    width = 192 if images else 12
    centres = np.random.RandomState(0).standard_normal((CLASSES, width))
    labels = np.arange(CLASSES).repeat(each)
    x = centres[labels] + 0.4 * np.random.RandomState(1 + seed).standard_normal((len(labels), width))
    if not images:
        return FeatureRows(x.astype(np.float32), torch.from_numpy(labels))
    pixels = np.clip(128 + 40 * x, 0, 255).astype(np.uint8).reshape(-1, 3, 8, 8)
    return ImageData(torch.from_numpy(pixels), torch.from_numpy(labels))
