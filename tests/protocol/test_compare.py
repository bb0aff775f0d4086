"""What a comparison consists of."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from dsal.data.features.feature_set import FeatureSet
from dsal.errors import FileFormatError, InputError
from dsal.protocol.comparison import base_tuning_data, plan, read_tuning, tune_once
from dsal.protocol.experiment import Experiment, settle

COMMON = Experiment(options={"expansion_size": 16}, seeds=(3, 4))


def test_every_method_gets_the_options_and_seeds_it_takes(tmp_path: Path) -> None:
    entries = plan(COMMON, [5, 10], {"acil": {"gamma": 1.0}, "ncm": {}}, tmp_path)
    assert [str(entry.folder.relative_to(tmp_path)) for entry in entries] == [
        "k5/acil",
        "k5/ncm",
        "k10/acil",
        "k10/ncm",
    ]
    acil, ncm, *_ = (entry.experiment for entry in entries)
    assert (acil.phases, acil.options, acil.seeds) == (5, {"expansion_size": 16, "gamma": 1.0}, (3, 4))
    assert (ncm.phases, ncm.options, ncm.seeds) == (5, {}, (3,))  # it draws nothing: one seed says all


def test_a_method_is_tuned_once(tmp_path: Path, sample: FeatureSet) -> None:
    experiment = Experiment(method="ncm", phases=5)
    data = base_tuning_data(settle(experiment, sample))
    trials = list(tune_once(experiment, data, tmp_path))
    found = read_tuning(tmp_path)["ncm"]
    assert found["trials"] == [{"options": dict(t.options), "accuracy": t.accuracy} for t in trials]
    assert found["chosen"] == dict(max(trials, key=lambda t: t.accuracy).options)
    assert list(tune_once(experiment, data, tmp_path)) == []
    other = base_tuning_data(settle(replace(experiment, base_classes=60), sample))
    assert len(list(tune_once(experiment, other, tmp_path))) == len(trials)


def test_tuning_that_was_stopped_midway_leaves_nothing(tmp_path: Path, sample: FeatureSet) -> None:
    experiment = Experiment(method="ncm", phases=5)
    next(tune_once(experiment, base_tuning_data(settle(experiment, sample)), tmp_path))
    assert read_tuning(tmp_path) == {}


def test_a_torn_record_of_tuning_is_named(tmp_path: Path) -> None:
    (tmp_path / "tuning.json").write_text(json.dumps({"ncm": 1})[:-2])
    with pytest.raises(FileFormatError, match=r"tuning\.json"):
        read_tuning(tmp_path)


def test_few_shots_are_of_later_classes_only_and_always_the_same(sample: FeatureSet) -> None:
    setting = settle(Experiment(method="ncm", phases=5, shots=3), sample)
    counts = np.bincount(setting.scenario.positions(setting.data.train_y))
    assert counts.tolist() == [20] * 50 + [3] * 50
    assert setting.config["shots"] == 3
    again = settle(Experiment(method="ncm", phases=5, shots=3, seeds=(7,)), sample)
    np.testing.assert_array_equal(again.data.train_x, setting.data.train_x)
    with pytest.raises(InputError, match="shots"):
        Experiment(shots=0)
