"""The paper's configurations: what they say, and that they run, on stand-ins of the data they want."""

from dataclasses import replace
from pathlib import Path

import pytest

from dsal.cli.options import combine, read_options
from dsal.data.features import FeatureSet, save_features
from dsal.evaluation.experiment import prepare
from dsal.evaluation.results import read_results
from dsal.evaluation.runner import run_experiment

CONFIGS = Path(__file__).parents[2] / "configs"
PAPER = {  # d_B and C of the paper
    "cifar100-resnet18.toml": (8192, 0.6),
    "imagenet100.toml": (16384, 0.8),
    "imagenet.toml": (16384, 1.4),
}


def test_there_are_no_others() -> None:
    assert {path.name for path in CONFIGS.glob("*.toml")} == set(PAPER)


@pytest.mark.parametrize("name", PAPER)
def test_they_hold_the_papers_values(name: str) -> None:
    experiment, _ = combine({}, read_options(CONFIGS / name))
    assert (experiment.expansion_size, experiment.compensation) == PAPER[name]
    assert (experiment.gamma, experiment.activation, experiment.method) == (0.1, "tanh", "ds-al")
    assert experiment.seeds == (0, 1, 2)
    assert experiment.base_classes is None  # half of them
    experiment.build_method(0)


@pytest.mark.parametrize("name", ["imagenet100.toml", "imagenet.toml"])
def test_they_run_on_a_stand_in(name: str, sample: FeatureSet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    options = read_options(CONFIGS / name)
    save_features(options["dataset"], replace(sample, name="stand-in"))
    experiment, _ = combine({"expansion_size": 32}, options)
    setting = prepare(experiment, lambda what, done, total: None)
    list(run_experiment(setting, tmp_path / "run"))
    document = read_results(tmp_path / "run")
    assert [phase["classes_seen"] for phase in document["phases"]] == [50, 60, 70, 80, 90, 100]
    assert document["config"]["compensation"] == PAPER[name][1]
