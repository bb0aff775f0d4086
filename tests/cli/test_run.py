"""``dsal run`` as people and scripts use it."""

import json
from functools import wraps
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from dsal.files.schema import Fact
from dsal.methods import METHODS, Method
from dsal.protocol import results
from dsal.protocol.results import read_results
from dsal.protocol.runs import read_config

from .conftest import Call


def test_a_line_for_each_phase_and_a_table_with_the_paper_beside(call: Call, small: tuple[str, ...]) -> None:
    done = call(*small, "--out", "run")
    assert done.code == 0
    lines = [line for line in done.err.splitlines() if line.startswith("phase")]
    assert len(lines) == 6
    assert lines[-1].split()[:4] == ["phase", "5/5", "100", "classes"]
    document = read_results(Path("run"))
    assert f"{document['last_accuracy']['mean']:.2f}" in done.out
    assert f"{document['average_accuracy']['mean']:.2f}" in done.out
    assert "the paper's, with a ResNet-32" in done.out
    assert "58.26±0.09" in done.out
    assert f"average {document['average_accuracy']['mean']:6.2f}" in lines[-1]


def test_json_is_the_document(call: Call, small: tuple[str, ...]) -> None:
    done = call(*small, "--out", "run", "--json", "--seeds", "0,3")
    document = json.loads(done.out)
    assert document == read_results(Path("run"))
    assert document["seeds"] == [0, 3]
    assert document["seed_varies"]
    assert len(document["average_accuracy"]["values"]) == 2


def test_the_folder_is_found_again_without_naming_it(call: Call, small: tuple[str, ...], tmp_path: Path) -> None:
    assert call(*small).code == 0
    (folder,) = (tmp_path / "runs").iterdir()
    again = call(*small, "--resume")
    assert again.code == 0
    assert "phase" not in again.err  # finished: nothing was computed
    assert "DS-AL *" in again.out
    assert call(*small, "--gamma", "3").code == 0
    assert len(list((tmp_path / "runs").iterdir())) == 2
    assert folder.name.startswith("cifar100-sample-ds-al-k5-")


def test_acil_is_a_method_and_a_compensation(call: Call, small: tuple[str, ...]) -> None:
    call(*small, "--method", "acil", "--out", "a")
    call(*small, "--compensation", "0", "--out", "b")
    acil, zero = read_results(Path("a")), read_results(Path("b"))
    assert acil["phases"][-1]["accuracy"] == zero["phases"][-1]["accuracy"]
    assert "compensation" not in acil["config"]


def test_the_effective_configuration_reproduces_the_run(call: Call, small: tuple[str, ...]) -> None:
    call(*small, "--out", "a", "--gamma", "0.5", "--seeds", "1")
    config = read_config(Path("a"))
    assert config is not None
    assert (config["gamma"], config["gamma_comp"], config["base_classes"]) == (0.5, 0.5, 50)
    assert call("run", "--config", "a/config.toml", "--out", "b", "--no-report").code == 0
    assert read_results(Path("a"))["average_accuracy"] == read_results(Path("b"))["average_accuracy"]


def test_the_report_is_written(call: Call, small: tuple[str, ...]) -> None:
    done = call(*small[:-1], "--out", "run")
    assert done.code == 0
    assert "</html>" in Path("run/report.html").read_text(encoding="utf-8")
    both = call("report", "run", "run", "--out", "both")
    assert both.code == 0
    assert Path(both.out.strip()).is_file()


def test_mlflow_is_missed_before_the_work(call: Call, small: tuple[str, ...]) -> None:
    if find_spec("mlflow"):
        pytest.skip("needs an environment without mlflow")
    done = call(*small, "--out", "run", "--mlflow")
    assert done.code == 2
    assert "dsal-learn[mlflow]" in done.err
    assert not Path("run").exists()


def test_tensorboard_events_are_written(call: Call, small: tuple[str, ...]) -> None:
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    assert call(*small, "--out", "run", "--tensorboard", "--seeds", "0,1").code == 0
    events = EventAccumulator("run/tensorboard/seed1")
    events.Reload()
    values = [event.value for event in events.Scalars("accuracy")]
    expected = [phase["accuracy"]["values"][1] for phase in read_results(Path("run"))["phases"]]
    assert values == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["--method", "dsal"], 2, "ds-al"),
        (["--activation", "tahn"], 2, "tanh"),
        (["--phases", "60"], 2, "50 classes left"),
        (["--phases", "many"], 2, "--phases"),
        (["--gamma", "0"], 2, "gamma"),
        (["--seeds", "0,x"], 2, "seeds"),
        (["--seeds", "1,1"], 2, "seeds"),
        (["--paper", "--quick"], 2, "not both"),
        (["--config", "nowhere.toml"], 2, "nowhere.toml"),
        (["--features", "middle"], 2, "last"),
        (["--class-order", "1993"], 1, "later phases treat as new"),
        (["--dataset", "nowhere.safetensors"], 1, "nowhere.safetensors"),
        (["--dataset", "cifar100-featurs"], 2, "data set"),
        (["--expansoin", "random"], 2, "--expansion"),
    ],
)
def test_mistakes_are_named_on_stderr(
    arguments: list[str], code: int, words: str, call: Call, small: tuple[str, ...]
) -> None:
    done = call(*small, *arguments)
    assert done.code == code
    assert words in done.err
    assert done.out == ""
    assert "Traceback" not in done.err


def test_version_and_help(call: Call) -> None:
    from dsal import __version__

    assert call("--version").out.strip() == f"dsal {__version__}"
    assert "--expansion-size" in call("run", "--help").out


def test_nothing_is_built_or_read_twice(call: Call, small: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    """One method to check the options with, one for each seed; results are shown as they were written."""
    built: list[str] = []
    read: list[Path] = []
    cls = METHODS.get("ds-al")
    init, open_file = cls.__init__, results.read_json

    @wraps(init)
    def counted(self: Method, **options: Any) -> None:
        built.append("ds-al")
        init(self, **options)

    def noted(path: Path, fact: Fact) -> Any:
        read.append(path)
        return open_file(path, fact)

    monkeypatch.setattr(cls, "__init__", counted)
    monkeypatch.setattr(results, "read_json", noted)
    assert call(*small[:-1], "--seeds", "0,1", "--out", "run").code == 0
    assert Path("run/report.html").is_file()
    assert (len(built), read) == (3, [])
