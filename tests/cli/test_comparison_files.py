"""Files of comparisons: options of all methods and of single ones; what is committed can be run."""

import json
from pathlib import Path

import pytest
from tests.data.cifar_files import dump_as_python3, write_folder

from dsal.backbones import Backbone, Card, save_backbone
from dsal.cli.shared_options import read_comparison
from dsal.data.sets.cifar import CIFAR100
from dsal.errors import InputError, UnknownNameError
from dsal.methods import METHODS
from dsal.protocol.comparison import at_phases, method_options, of_method, plan
from dsal.protocol.experiment import Experiment

from .conftest import Call

CONFIGS = Path(__file__).parents[2] / "configs"
NETWORKS = {name for name in METHODS.names() if METHODS.get(name).inputs == "images"}


@pytest.mark.parametrize("name", ["table1-cpu", "table1-paper"])
def test_every_method_that_trains_is_there_with_options_it_takes(name: str) -> None:
    asked = read_comparison(CONFIGS / f"{name}.toml")
    assert set(asked["methods"]) >= NETWORKS
    for method in asked["methods"]:
        options = method_options(method, asked["shared"], asked["own"])
        experiment = of_method(Experiment(), method, at_phases(options))
        experiment.build_method(0)
        if name == "table1-cpu" and method in NETWORKS:
            assert experiment.options["epochs"] == asked["shared"]["epochs"]  # one budget for all


def test_own_options_override_those_of_all(tmp_path: Path) -> None:
    path = tmp_path / "some.toml"
    path.write_text("phases = [5]\n[method]\nepochs = 3\ngamma = 2.0\n[method.lwf]\nepochs = 4\nstrength = 9.0\n")
    asked = read_comparison(path)
    assert asked["phases"] == [5]
    assert method_options("lwf", asked["shared"], asked["own"]) == {"epochs": 4, "strength": 9.0}
    assert method_options("ewc", asked["shared"], asked["own"]) == {"epochs": 3}
    assert method_options("acil", asked["shared"], asked["own"]) == {"gamma": 2.0}


@pytest.mark.parametrize(
    ("text", "error", "told"),
    [
        ("[method]\nepoch = 3\n", UnknownNameError, "epochs"),
        ("[method.lwff]\nepochs = 3\n", UnknownNameError, "lwf"),
        ("[method]\nphases = 3\n", InputError, "put it above"),
        ("[method\n", InputError, "cannot read the configuration"),
    ],
)
def test_what_no_method_takes_is_refused(text: str, error: type[Exception], told: str, tmp_path: Path) -> None:
    path = tmp_path / "some.toml"
    path.write_text(text)
    with pytest.raises(error, match=told):
        read_comparison(path)


@pytest.mark.slow
def test_methods_on_features_and_on_images_share_weights_images_and_one_table(call: Call, tmp_path: Path) -> None:
    write_folder(tmp_path / "data", CIFAR100, dump_as_python3, rows=200)
    seen, grey = tuple(range(50)), (0.5,) * 3
    card = Card(
        architecture="resnet32", dataset="cifar100", seen_classes=seen, in_channels=3, size=8, mean=grey, std=grey
    )
    save_backbone(tmp_path / "weights.safetensors", Backbone(card))
    path = tmp_path / "some.toml"
    path.write_text(
        'dataset = "cifar100"\nbackbone = "weights.safetensors"\nphases = [2]\ntune = false\n'
        'methods = ["ncm", "icarl"]\n'
        "[method]\nepochs = 1\nadapt-epochs = 0\nbatch-size = 50\n[method.icarl]\nexemplars-per-class = 2\n"
    )
    result = call("compare", "--config", path, "--data-root", "data", "--out", "out", "--no-report")
    assert result.code == 0, result.err
    runs = {run["method"]: run for run in json.loads((tmp_path / "out/comparison.json").read_text())["runs"]}
    assert runs["ncm"]["stored_samples"] == 0
    assert runs["icarl"]["stored_samples"] == 200
    assert runs["icarl"]["stored_bytes"] > 200 * 3 * 8 * 8  # images of 8 x 8 pixels, as the network wants them
    assert runs["icarl"]["trained_parameters"] > 400_000
    lines = [line.split() for line in result.out.splitlines()]
    assert runs["ncm"]["other_readouts"] == {}
    head = runs["icarl"]["other_readouts"]["cnn"]
    results = json.loads((tmp_path / "out/k2/icarl/results.json").read_text())
    assert results["other_readouts"] == {"cnn": head}
    assert head["average_accuracy"] != results["average_accuracy"]
    assert next(line for line in lines if line[:2] == ["by", "head"])[2] == f"{head['average_accuracy']['mean']:.2f}"
    row = next(line for line in lines if line[:1] == ["icarl"])
    assert "200" in row
    assert row[-1] == "no"


def test_options_may_depend_on_the_number_of_phases(tmp_path: Path) -> None:
    path = tmp_path / "some.toml"
    path.write_text("[method]\nepochs = 3\n[method.foster]\nboost-beta = 0.9\n[method.foster.k25]\nboost-beta = 0.5\n")
    asked = read_comparison(path)
    chosen = {name: method_options(name, asked["shared"], asked["own"]) for name in ("foster", "lwf")}
    entries = plan(Experiment(), [5, 25], chosen, tmp_path)
    found = {(run.experiment.phases, run.experiment.method): run.experiment.options for run in entries}
    assert found[5, "foster"] == {"epochs": 3, "boost_beta": 0.9}
    assert found[25, "foster"] == {"epochs": 3, "boost_beta": 0.5}
    assert found[25, "lwf"] == {"epochs": 3}


def test_the_published_schedules_of_a_method_are_those_of_each_number_of_phases() -> None:
    asked = read_comparison(CONFIGS / "table1-paper.toml")
    chosen = {name: method_options(name, asked["shared"], asked["own"]) for name in asked["methods"]}
    runs = {
        (e.experiment.phases, e.experiment.method): e.experiment
        for e in plan(Experiment(), [5, 25, 50], chosen, Path())
    }
    options = {key: run.options for key, run in runs.items()}
    for k, each in ((5, 5000), (25, 1000), (50, 500)):
        for name in ("rmm", "icarl-rmm"):
            assert len(options[k, name]["memory_shares"]) == k + 1
            assert options[k, name]["phase_images"] == each
    betas = {
        k: (options[k, "foster"].get("boost_beta", 0.94), options[k, "foster"].get("compress_beta", 0.97))
        for k in (5, 25, 50)
    }
    assert betas == {5: (0.94, 0.97), 25: (0.95, 0.97), 50: (0.95, 0.98)}
    for name in ("lwf", "ewc", "r-ewc", "icarl"):
        method = runs[5, name].build_method(0)
        assert (method.base_weight_decay, method.weight_decay) == (5e-4, 2e-4)  # type: ignore[attr-defined]
        assert method.base_milestones != method.milestones  # type: ignore[attr-defined]
