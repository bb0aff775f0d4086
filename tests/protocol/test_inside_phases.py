"""Methods on images that learn in steps: the runner saves inside of a phase, and goes on to the same result."""

from collections.abc import Iterator
from dataclasses import replace
from io import StringIO
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from rich.console import Console
from tests.protocol.same import comparable

from dsal.base.progress import Progress
from dsal.cli.display import Display
from dsal.data import Samples
from dsal.errors import InputError
from dsal.methods import METHODS, Method, Phase, State
from dsal.protocol.experiment import Experiment, Setting, prepare
from dsal.protocol.phases import PhaseProgress, PhaseResult
from dsal.protocol.results import read_results
from dsal.protocol.runs import Step, run_experiment

BATCH = 75


class PixelMeans(Method):
    """The class whose mean image is nearest; means are summed up batch by batch."""

    inputs = "images"

    def __init__(self) -> None:
        self.sums, self.done, self.classes = np.zeros((0, 784)), 0, 0

    @property
    def exemplar_free(self) -> bool:
        return True

    @property
    def classes_seen(self) -> int:
        return self.classes

    def _steps(self, phase: Phase) -> Iterator[Progress]:
        sums = np.zeros((phase.classes[-1] + 1, 784))
        sums[: len(self.sums)] = self.sums
        self.sums = sums
        rest = torch.arange(self.done, len(phase.samples))
        for images, labels in phase.samples.batches(BATCH, rest):
            # a running mean, so that the order of batches shows in the last bits
            np.add.at(self.sums, labels.numpy(), images.flatten(1).numpy() / 3.0)
            self.sums *= 1.0 + 1e-9
            self.done += len(images)
            yield Progress(self.done, len(phase.samples), f"{self.done} images")
        self.done, self.classes = 0, phase.classes[-1] + 1

    def scores(self, samples: Samples) -> NDArray[np.float64]:
        (images, _), *_ = samples.batches(len(samples))
        means = self.sums / np.linalg.norm(self.sums, axis=1, keepdims=True)
        return images.flatten(1).numpy() @ means.T

    def state(self) -> State:
        return State({"sums": self.sums}, {"done": self.done, "classes": self.classes})

    @classmethod
    def from_state(cls, state: State) -> "PixelMeans":
        method = cls()
        method.sums, method.done = state.arrays["sums"].copy(), state.facts["done"]
        method.classes = state.facts["classes"]
        return method


def silent(what: str, done: int, total: int) -> None:
    pass


@pytest.fixture(autouse=True)
def _registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(METHODS._entries, "pixel-means", PixelMeans)


@pytest.fixture
def setting() -> Setting:
    """60 characters first, 40 in the second phase: 15 training images each, in 12 and 8 steps."""
    whole = prepare(Experiment(dataset="omniglot", method="pixel-means", phases=1), silent)
    images = replace(
        whole.data,
        train=whole.data.train.take(torch.nonzero(whole.data.train.labels < 100).flatten()),
        test=whole.data.test.take(torch.nonzero(whole.data.test.labels < 100).flatten()),
        class_names=whole.data.class_names[:100],
    )
    from dsal.protocol.experiment import settle

    return settle(replace(whole.experiment, base_classes=60, seeds=(0, 1)), images)


def finish(steps: Iterator[Step], out: Path) -> dict[str, object]:
    assert len([step for step in steps if isinstance(step.result, PhaseResult)]) == 4
    return comparable(read_results(out))


@pytest.mark.parametrize("done", [1, 11, 12, 13, 14, 21, 22, 23])  # steps and tests: inside, before and after a phase
def test_stopped_inside_a_phase_it_goes_on_to_the_same_results(done: int, setting: Setting, tmp_path: Path) -> None:
    expected = finish(run_experiment(setting, tmp_path / "unbroken"), tmp_path / "unbroken")
    steps = run_experiment(setting, tmp_path / "stopped", checkpoint_seconds=0)
    stopped = list(islice(steps, done))
    steps.close()
    resumed = list(run_experiment(setting, tmp_path / "stopped", resume=True))
    assert finish(iter(resumed), tmp_path / "stopped") == expected
    again = [step for step in resumed if not step.restored]
    assert len(again) == 2 * (12 + 1 + 8 + 1) - len(stopped)  # nothing is learned twice


def test_time_of_a_phase_counts_what_was_learned_before_the_stop(setting: Setting, tmp_path: Path) -> None:
    steps = run_experiment(setting, tmp_path, checkpoint_seconds=0)
    *_, last = islice(steps, 5)
    steps.close()
    assert isinstance(last.result, PhaseProgress)
    first, *_ = run_experiment(setting, tmp_path, resume=True)
    assert isinstance(first.result, PhaseProgress)
    assert first.result.learn_seconds > last.result.learn_seconds > 0


def test_the_bar_moves_inside_of_a_phase(setting: Setting, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    display, seen = Display(), []
    display.console = Console(file=StringIO(), force_terminal=True)
    bar = display.bar()
    update = bar.update
    monkeypatch.setattr(bar, "update", lambda task, **now: (seen.append(now), update(task, **now)))
    monkeypatch.setattr(display, "bar", lambda: bar)
    display.follow(run_experiment(setting, tmp_path), setting)
    completed = [now["completed"] for now in seen]
    assert completed == sorted(completed)
    assert seen[0] == {"completed": 10 * BATCH, "description": f"phase 0/1  {BATCH} images"}
    assert len(completed) == 2 * (12 + 1 + 8 + 1)
    assert completed[-1] == bar.tasks[0].total


def test_images_are_not_features(sample_file: Path) -> None:
    with pytest.raises(InputError, match="pixel-means learns from images"):
        prepare(Experiment(dataset=str(sample_file), method="pixel-means"), silent)


def test_a_phase_that_does_not_fit_is_refused_before_anything_is_learned(setting: Setting) -> None:
    method, samples = PixelMeans(), setting.data.train.take(slice(20))
    for classes in ([0], [1], [0, 2], [1, 0], []):
        with pytest.raises(InputError):
            method.learn(Phase(0, classes, samples))
    with pytest.raises(InputError, match="needs samples"):
        method.learn(Phase(0, [0, 1], samples.take(slice(0))))
