"""Command line over file over preset over default."""

from datetime import date
from inspect import Parameter, Signature
from pathlib import Path
from typing import Literal

import pytest
from tests.protocol.same import comparable
from typer.main import get_command

from dsal.cli.main import app
from dsal.cli.shared_options import PAPER, QUICK, combine, read_assignments, read_options
from dsal.errors import InputError, UnknownNameError
from dsal.methods import METHODS
from dsal.methods.closed_form.ncm import NCM
from dsal.protocol.experiment import Experiment, option_hints
from dsal.protocol.results import read_results
from dsal.protocol.runs import read_config

from .conftest import Call


def test_every_option_can_stand_in_a_file() -> None:
    parameters = {parameter.name for parameter in get_command(app).commands["run"].params}  # type: ignore[attr-defined]
    experiment, handling = combine({}, {})
    shorthands = parameters & option_hints("ds-al").keys()
    assert {"expansion_size", "gamma", "compensation"} < shorthands
    special = {"config", "help", "help_all", "assignments"}
    assert parameters - shorthands - special == {*vars(experiment), *vars(handling)} - {"options"}


@pytest.mark.parametrize("command", ["run", "compare"])
def test_rare_options_are_shown_when_asked_for(command: str, call: Call) -> None:
    short, long = call(command, "--help"), call(command, "--help-all")
    assert (short.code, long.code) == (0, 0)
    for rare in ("--eval-every", "--confusions", "--checkpoint-seconds"):
        assert rare not in short.out
        assert rare in long.out
    assert "--help-all" in short.out
    assert "--dataset" in short.out


def test_seed_is_another_name_of_seeds(call: Call, small: tuple[str, ...]) -> None:
    assert call(*small, "--seed", "3", "--out", "run").code == 0
    assert read_results(Path("run"))["seeds"] == [3]


def test_any_option_of_a_method_can_be_set() -> None:
    asked = read_assignments(["metric=cosine", "power=0.5", "off-diagonal=1"])
    assert asked == {"metric": "cosine", "power": 0.5, "off_diagonal": 1}
    experiment, _ = combine({"method": "fecam", "power": 0.7, "off_diagonal": 1}, {"diagonal": 2.0})
    assert experiment.options == {"power": 0.7, "diagonal": 2.0, "off_diagonal": 1.0}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("power", "NAME=VALUE"),
        ("pwoer=1", "did you mean 'power'"),
        ("phases=3", "an option of the run"),
        ("gamma=1", "unknown option 'gamma'"),  # of another method
        ("power=[1]", "option power must be float, got \\[1\\]"),
    ],
)
def test_a_setting_that_says_nothing_is_refused(text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        combine({"method": "fecam", **read_assignments([text])}, {})


def test_numbers_may_be_chosen_by_the_model(call: Call, small: tuple[str, ...]) -> None:
    done = call(*small, "--gamma", "auto", "--compensation", ".5", "--out", "run")
    assert done.code == 0, done.err
    config = read_results(Path("run"))["config"]
    assert (config["gamma"], config["compensation"]) == ("auto", 0.5)
    wrong = call(*small, "--gamma", "much")
    assert (wrong.code, "option gamma must be float or 'auto', got 'much'" in wrong.err) == (2, True)


def test_precedence(tmp_path: Path) -> None:
    file = tmp_path / "options.toml"
    file.write_text(
        'expansion-size = 100\ngamma = 2\nseeds = [3, 4]\nclass_order = 1993\nquick = true\nout = "there"\n'
    )
    filed = read_options(file)
    experiment, handling = combine({"gamma": 5.0, "out": "here"}, filed)
    assert experiment.options == {"gamma": 5.0, "expansion_size": 100}  # command line over file, file over preset
    assert experiment.phases == QUICK["phases"]  # preset over default
    assert experiment.method == "ds-al"  # default
    assert (experiment.seeds, experiment.class_order) == ((3, 4), "1993")
    assert handling.out == "here"


def test_the_papers_values() -> None:
    experiment, _ = combine({"paper": True}, {})
    assert (experiment.options, experiment.phases) == ({k: v for k, v in PAPER.items() if k != "class_order"}, 25)
    acil, _ = combine({"paper": True, "method": "acil"}, {})
    assert acil.options == {"expansion": "random", "expansion_size": 8192, "gamma": 0.1}


def test_an_unknown_key_is_answered_with_the_nearest(tmp_path: Path) -> None:
    file = tmp_path / "options.toml"
    file.write_text("expansion_sise = 100\n")
    with pytest.raises(UnknownNameError, match="did you mean 'expansion-size'"):
        combine({}, read_options(file))


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("phases", 2.5),
        ("phases", "5"),
        ("phases", True),
        ("gamma", "much"),
        ("dataset", 3),
        ("resume", 1),
        ("seeds", []),
        ("seeds", [0.5]),
        ("seeds", -1),
        ("class_order", 1.5),
    ],
)
def test_a_value_of_the_wrong_type_is_refused(key: str, value: object) -> None:
    with pytest.raises(InputError, match=key.replace("_", "-")):
        combine({}, {key: value})


def test_a_file_that_is_not_toml_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "options.toml"
    file.write_text("phases == 3")
    with pytest.raises(InputError, match="cannot read"):
        read_options(file)


NESTED = """
expansion-size = 64
phases = 3

[method]
name = "acil"
gamma = 2
"""


def test_the_method_has_a_table_of_its_own(tmp_path: Path) -> None:
    file = tmp_path / "options.toml"
    file.write_text(NESTED.replace("expansion-size = 64", ""))
    experiment, _ = combine({"expansion_size": 32}, read_options(file))
    assert (experiment.method, experiment.phases) == ("acil", 3)
    assert experiment.options == {"gamma": 2.0, "expansion_size": 32}
    file.write_text(NESTED)  # an option of the method outside of its table, as in files of earlier versions
    assert combine({}, read_options(file))[0].options == {"gamma": 2.0, "expansion_size": 64}
    file.write_text(NESTED + "phases = 4\n")
    with pytest.raises(InputError, match=r"phases is an option of the run.*above \[method\]"):
        read_options(file)


class Choosy(NCM):
    """The nearest class mean, with an option of every type that TOML has, and None."""

    def __init__(
        self,
        *,
        metric: str = "euclidean",
        limit: float | None = 0.5,
        mode: Literal["fast", "exact"] | None = "fast",
        widths: tuple[int, ...] = (1,),
        pair: tuple[str, float | None] = ("a", 1.0),
        names: list[str] | None = None,
        table: dict[str, list[float]] | None = None,
        flag: bool = False,
        since: date = date(2020, 1, 1),
        anything=None,  # type: ignore[no-untyped-def]
    ) -> None:
        super().__init__(metric=metric)
        own = {name: value for name, value in locals().items() if name not in ("self", "metric", "__class__")}
        vars(self).update(own)


SETTINGS = {  # as text, as Python's value
    "limit": ("none", None),
    "mode": ("exact", "exact"),
    "widths": ("[8, 4]", (8, 4)),
    "pair": ('["b", "none"]', ("b", None)),
    "names": ('["x"]', ["x"]),
    "table": ("{ y = [1, 2.5] }", {"y": [1.0, 2.5]}),
    "flag": ("true", True),
    "since": ("2024-02-29", date(2024, 2, 29)),
    "anything": ('{ deep = [1, "two"] }', {"deep": [1, "two"]}),
}


def test_options_of_any_type_survive_the_configuration_file(
    call: Call, small: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(METHODS._entries, "choosy", Choosy)
    assert combine({"method": "choosy", **read_assignments(["mode=none"])}, {})[0].options == {"mode": None}
    asked = [f"--set={name}={text}" for name, (text, _) in SETTINGS.items()]
    experiment, _ = combine({"method": "choosy", **read_assignments(text[6:] for text in asked)}, {})
    assert experiment.options == {name: value for name, (_, value) in SETTINGS.items()}
    sample = [text for text in small if text not in ("--expansion-size", "32")]
    assert call(*sample, "--method", "choosy", "--out", "a", *asked).code == 0
    config = read_config(Path("a"))
    assert config is not None
    assert {name: config[name] for name in SETTINGS} == {
        **{name: value for name, (_, value) in SETTINGS.items()},
        **{"limit": "none", "widths": [8, 4], "pair": ["b", "none"], "since": "2024-02-29"},
    }
    again, _ = combine({}, read_options(Path("a/config.toml")))
    assert (again.method, again.options) == ("choosy", {"metric": "euclidean", **experiment.options})
    done = call("run", "--config", "a/config.toml", "--out", "a", "--resume", "--no-report")  # found to be the same run
    assert (done.code, "phase" in done.err) == (0, False)
    assert call("run", "--config", "a/config.toml", "--out", "b", "--no-report").code == 0
    assert comparable(read_results(Path("a"))) == comparable(read_results(Path("b")))


@pytest.mark.parametrize("name", ["phases", "name", "options"])
def test_a_method_whose_option_bears_a_name_of_the_run_is_refused(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    taken = type("Taken", (NCM,), {})
    taken.__signature__ = Signature([Parameter(name, Parameter.KEYWORD_ONLY, default=1)])  # type: ignore[attr-defined]
    monkeypatch.setitem(METHODS._entries, "taken", taken)
    with pytest.raises(InputError, match=f"rename its options {name}"):
        Experiment(method="taken")
