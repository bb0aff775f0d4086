"""Whole experiments on real features: the same numbers every time, however often they are stopped."""

import csv
import json
from dataclasses import replace
from itertools import count, islice, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.data.cifar_files import dump_as_python3, write_folder
from tests.protocol.same import comparable

from dsal.backbones import Backbone, Card, save_backbone
from dsal.data.features.feature_set import FeatureSet, save_features
from dsal.data.sets.cifar import CIFAR10
from dsal.errors import FileFormatError, InputError, LeakError, UnknownNameError
from dsal.protocol import metrics
from dsal.protocol.experiment import Experiment, Setting, prepare
from dsal.protocol.phases import PhaseResult, run_phases
from dsal.protocol.results import kept_tests, read_results
from dsal.protocol.runs import is_finished, read_config, run_experiment
from dsal.report.page import build_report
from dsal.report.run_pages import read_runs


def silent(what: str, done: int, total: int) -> None:
    pass


@pytest.fixture
def setting(sample_file: Path) -> Setting:
    experiment = Experiment(dataset=str(sample_file), phases=3, options={"expansion_size": 48}, seeds=(0, 1))
    return prepare(experiment, silent)


def finish(setting: Setting, out: Path, **options: Any) -> dict[str, Any]:
    for _ in run_experiment(setting, out, **options):
        pass
    return read_results(out)


def test_twice_the_same_to_the_last_digit(setting: Setting, tmp_path: Path) -> None:
    first, second = finish(setting, tmp_path / "a"), finish(setting, tmp_path / "b")
    assert comparable(first) == comparable(second)
    assert (tmp_path / "a/confusion.npz").read_bytes() == (tmp_path / "b/confusion.npz").read_bytes()
    assert (tmp_path / "a/config.toml").read_bytes() == (tmp_path / "b/config.toml").read_bytes()


@pytest.mark.parametrize("done", range(9))  # two seeds of four phases, and the moment before the results are written
def test_stopped_after_any_phase_it_goes_on_to_the_same_results(done: int, setting: Setting, tmp_path: Path) -> None:
    expected = finish(setting, tmp_path / "unbroken")
    out = tmp_path / "stopped"
    steps = run_experiment(setting, out, checkpoint_seconds=0)
    assert len(list(islice(steps, done))) == done
    steps.close()
    assert not (out / "results.json").exists()
    assert not is_finished(setting.config, out)
    resumed = list(run_experiment(setting, out, resume=True))
    # the step that was cut off may have been saved; all that was yielded is restored
    assert [step.restored for step in resumed][:done] == [True] * done
    assert len(resumed) == 8
    assert comparable(read_results(out)) == comparable(expected)
    assert not (out / "state").exists()
    assert is_finished(setting.config, out)


def test_rare_checkpoints_only_cost_time(setting: Setting, tmp_path: Path) -> None:
    steps = run_experiment(setting, tmp_path / "stopped", checkpoint_seconds=1e9)
    list(islice(steps, 6))  # seed 0 is finished, seed 1 has done two phases that nobody saved
    steps.close()
    resumed = list(run_experiment(setting, tmp_path / "stopped", resume=True))
    assert [step.restored for step in resumed] == [True] * 4 + [False] * 4
    assert comparable(read_results(tmp_path / "stopped")) == comparable(finish(setting, tmp_path / "unbroken"))


def test_without_resume_a_stopped_run_begins_again(setting: Setting, tmp_path: Path) -> None:
    steps = run_experiment(setting, tmp_path, checkpoint_seconds=0)
    list(islice(steps, 3))
    steps.close()
    assert not any(step.restored for step in run_experiment(setting, tmp_path))


def test_a_folder_belongs_to_one_configuration(setting: Setting, tmp_path: Path) -> None:
    finish(setting, tmp_path)
    other = prepare(replace(setting.experiment, options={"expansion_size": 48, "gamma": 2.0}), silent)
    before = (tmp_path / "results.json").read_bytes()
    for resume in (False, True):
        with pytest.raises(InputError, match=r"gamma \(0.1 there, 2.0 here\)"):
            finish(other, tmp_path, resume=resume)
    assert (tmp_path / "results.json").read_bytes() == before


def test_changed_data_cannot_be_resumed(setting: Setting, sample: FeatureSet, tmp_path: Path) -> None:
    path = tmp_path / "features.safetensors"
    experiment = replace(setting.experiment, dataset=str(path))
    save_features(path, sample)
    steps = run_experiment(prepare(experiment, silent), tmp_path / "run", checkpoint_seconds=0)
    next(steps)
    steps.close()
    save_features(path, replace(sample, train_x=sample.train_x * 2))
    with pytest.raises(InputError, match="data_sha256"):
        finish(prepare(experiment, silent), tmp_path / "run", resume=True)


def test_a_damaged_state_is_not_used(setting: Setting, tmp_path: Path) -> None:
    steps = run_experiment(setting, tmp_path, checkpoint_seconds=0)
    next(steps)
    steps.close()
    state = tmp_path / "state" / "seed0.safetensors"
    state.write_bytes(state.read_bytes()[:-100])
    with pytest.raises(FileFormatError):
        finish(setting, tmp_path, resume=True)


def test_files_tell_the_same_story(setting: Setting, tmp_path: Path) -> None:
    document = finish(setting, tmp_path)
    groups = setting.scenario.phases
    with np.load(tmp_path / "confusion.npz") as file:
        counts = {seed: [file[f"seed{seed}_phase{k}"] for k in range(4)] for seed in (0, 1)}
    assert all(c.dtype == np.int32 and c.sum() == 10 * len(c) for of_seed in counts.values() for c in of_seed)
    lasts = [metrics.accuracy(counts[seed][-1]) for seed in (0, 1)]
    assert document["last_accuracy"]["values"] == lasts
    assert document["last_accuracy"]["mean"] == pytest.approx(np.mean(lasts))
    assert document["last_accuracy"]["std"] == pytest.approx(abs(lasts[0] - lasts[1]) / np.sqrt(2))
    assert document["forgetting"]["values"] == [metrics.forgetting(counts[seed], groups) for seed in (0, 1)]
    assert [phase["classes_seen"] for phase in document["phases"]] == [50, 67, 84, 100]
    assert document["phases"][0]["accuracy_new"] is None
    assert [p for phase in document["phases"] for p in phase["new_classes"]] == list(range(100))
    assert read_config(tmp_path) == document["config"]
    assert document["provenance"]["data_sha256"] == setting.data.fingerprint
    with (tmp_path / "phases.csv").open() as text:
        rows = list(csv.DictReader(text))
    assert [(row["seed"], row["phase"]) for row in rows] == [(str(s), str(k)) for s in (0, 1) for k in range(4)]
    assert float(rows[-1]["accuracy"]) == lasts[1]
    assert rows[0]["accuracy_new"] == ""
    json.dumps(document, allow_nan=False)


@pytest.mark.parametrize("every", [2, 3, 10])
def test_fewer_tests_are_some_of_all_tests(sample_file: Path, tmp_path: Path, every: int) -> None:
    experiment = Experiment(dataset=str(sample_file), phases=10, options={"expansion_size": 48})
    everywhere = finish(prepare(experiment, silent), tmp_path / "all")
    setting = prepare(replace(experiment, eval_every=every), silent)
    out = tmp_path / "some"
    steps = run_experiment(setting, out, checkpoint_seconds=0)
    next(steps)
    next(steps)
    steps.close()
    list(run_experiment(setting, out, resume=True))
    document = read_results(out)
    tested = [k for k in range(11) if k % every == 0 or k == 10]
    names = ("phase", "classes_seen", "accuracy", "accuracy_base", "accuracy_new")
    picked = [{name: everywhere["phases"][k][name] for name in names} for k in tested]
    assert [{name: phase[name] for name in names} for phase in document["phases"]] == picked
    assert [p for phase in document["phases"] for p in phase["new_classes"]] == list(range(100))
    assert document["average_accuracy"]["mean"] == pytest.approx(np.mean([p["accuracy"]["mean"] for p in picked]))
    assert document["last_accuracy"] == everywhere["last_accuracy"]
    assert document["config"] == {**everywhere["config"], "eval_every": every}
    groups = [range(*ends) for ends in pairwise([0, *(phase["classes_seen"] for phase in picked)])]
    with np.load(out / "confusion.npz") as file:
        counts = [file[f"seed0_phase{k}"] for k in tested]
    assert document["forgetting"]["mean"] == metrics.forgetting(counts, groups)
    assert build_report([out], out).is_file()


def test_confusion_counts_of_some_tests_alone(sample_file: Path, tmp_path: Path) -> None:
    experiment = Experiment(dataset=str(sample_file), phases=50, options={"expansion_size": 32}, seeds=(0, 1))
    everything = finish(prepare(replace(experiment, confusions=1000), silent), tmp_path / "all")
    setting, out = prepare(replace(experiment, confusions=4), silent), tmp_path / "some"
    steps = run_experiment(setting, out, checkpoint_seconds=0)
    for _ in range(20):
        next(steps)
    steps.close()
    document = finish(setting, out, resume=True)
    same = {**comparable(everything), "config": document["config"], "provenance": comparable(document)["provenance"]}
    assert comparable(document) == {**same, "stored_bytes": document["stored_bytes"]}
    with np.load(out / "confusion.npz") as some, np.load(tmp_path / "all" / "confusion.npz") as all_of_them:
        assert len(all_of_them.files) == 2 * 51
        assert set(some.files) == {f"seed{seed}_phase{k}" for seed in (0, 1) for k in (0, 17, 33, 50)}
        assert all((some[name] == all_of_them[name]).all() for name in some.files)
    assert [read_runs([out])[0].phases[k].number for k in kept_tests(document)] == [0, 17, 33, 50]
    assert build_report([out], out).is_file()
    bare = finish(prepare(replace(experiment, confusions=0), silent), tmp_path / "none")
    assert bare["forgetting"] == everything["forgetting"]
    assert not (tmp_path / "none" / "confusion.npz").exists()
    assert build_report([tmp_path / "none"], tmp_path / "none").is_file()


def test_acil_does_not_depend_on_the_number_of_phases(sample_file: Path, tmp_path: Path) -> None:
    correct = []
    for phases in (5, 25, 50):
        experiment = Experiment(dataset=str(sample_file), phases=phases, method="acil", options={"expansion_size": 256})
        finish(prepare(experiment, silent), tmp_path / str(phases))
        with np.load(tmp_path / str(phases) / "confusion.npz") as file:
            correct.append(int(np.trace(file[f"seed0_phase{phases}"])))
    assert correct[0] == correct[1] == correct[2]


def test_classes_are_known_by_their_position(setting: Setting, tmp_path: Path, sample: FeatureSet) -> None:
    generic = tmp_path / "generic.safetensors"  # a backbone that claims nothing may meet any order
    save_features(generic, replace(sample, backbone={"architecture": "resnet32", "seen_classes": None}))
    experiment = replace(setting.experiment, dataset=str(generic), class_order="1993", base_classes=30, seeds=(0,))
    document = finish(prepare(experiment, silent), tmp_path / "run")
    assert document["class_names"][:3] == ["class 68", "class 56", "class 78"]
    assert document["phases"][0]["classes_seen"] == document["config"]["base_classes"] == 30
    assert document["provenance"]["backbone_trained_on"] == "generic"


def test_weights_that_know_a_later_class_are_refused(setting: Setting) -> None:
    with pytest.raises(LeakError):
        prepare(replace(setting.experiment, class_order="1993"), silent)


def test_an_option_the_method_does_not_take_is_refused(setting: Setting) -> None:
    with pytest.raises(UnknownNameError, match="unknown acil option 'compensation'"):
        replace(setting.experiment, method="acil", options={"compensation": 0.5})
    with pytest.raises(UnknownNameError, match="seed"):  # that is what `seeds` are for
        replace(setting.experiment, options={"seed": 1})


def test_unknown_data_sets_are_answered() -> None:
    with pytest.raises(UnknownNameError, match="'omniglot'"):
        prepare(Experiment(dataset="omniglott"), silent)
    with pytest.raises(InputError, match="give a backbone"):
        prepare(Experiment(dataset="omniglot"), silent)


def test_images_go_through_a_backbone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DSAL_CACHE", str(tmp_path / "cache"))
    write_folder(tmp_path, CIFAR10, dump_as_python3, rows=10)
    experiment = Experiment(
        dataset="cifar10",
        data_root=str(tmp_path),
        backbone=str(write_weights(tmp_path)),
        features="last",
        phases=5,
        options={"expansion_size": 16},
    )
    reports: list[tuple[str, int, int]] = []
    first = prepare(experiment, lambda *report: reports.append(report))
    assert reports[-1] == ("features", 60, 60)
    again = prepare(experiment, lambda *_: pytest.fail("the cache was not used"))
    np.testing.assert_array_equal(first.data.train_x, again.data.train_x)
    document = finish(first, tmp_path / "run")
    assert document["provenance"]["backbone"]["architecture"] == "resnet32"
    assert document["provenance"]["backbone_trained_on"] == "base classes"
    assert len(document["provenance"]["weights_sha256"]) == 64
    with pytest.raises(LeakError):
        prepare(replace(experiment, base_classes=3), silent)


def write_weights(root: Path) -> Path:
    """A ResNet-32 that claims to have seen the first five classes."""
    torch.manual_seed(0)
    seen, grey = tuple(range(5)), (0.5,) * 3
    card = Card(
        architecture="resnet32", dataset="cifar10", seen_classes=seen, in_channels=3, size=32, mean=grey, std=grey
    )
    save_backbone(root / "weights.safetensors", Backbone(card))
    return root / "weights.safetensors"


def test_a_run_killed_while_it_tidied_up_is_finished(setting: Setting, tmp_path: Path) -> None:
    document = finish(setting, tmp_path)
    (tmp_path / "state").mkdir()
    assert is_finished(setting.config, tmp_path)
    assert read_results(tmp_path) == document


def test_seconds_are_those_of_the_given_clock(setting: Setting) -> None:
    readings = count(step=10)
    results = run_phases(setting.build_method(0), setting.data, setting.scenario, clock=lambda: next(readings))
    learned = [result.learn_seconds for result in results if isinstance(result, PhaseResult)]
    assert len(learned) == 4
    assert all(seconds and not seconds % 10 for seconds in learned)
