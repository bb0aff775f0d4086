"""Command line over file over preset over default."""

from pathlib import Path

import pytest
from typer.main import get_command

from dsal.cli.main import app
from dsal.cli.options import PAPER, QUICK, combine, read_assignments, read_options
from dsal.errors import InputError, UnknownNameError


def test_every_option_can_stand_in_a_file() -> None:
    parameters = {parameter.name for parameter in get_command(app).commands["run"].params}  # type: ignore[attr-defined]
    experiment, handling = combine({}, {})
    assert parameters - {"config", "help", "assignments"} == {*vars(experiment), *vars(handling)} - {"method_options"}


def test_any_option_of_a_method_can_be_set() -> None:
    asked = read_assignments(["metric=cosine", "power=0.5", "off-diagonal=1"])
    assert asked == {"metric": "cosine", "power": 0.5, "off_diagonal": 1}
    experiment, _ = combine({"method": "fecam", "power": 0.7, "off_diagonal": 1}, {"diagonal": 2.0})
    assert experiment.method_options == {"power": 0.7, "diagonal": 2.0, "off_diagonal": 1.0}


@pytest.mark.parametrize(("text", "message"), [("power", "NAME=VALUE"), ("pwoer=1", "did you mean 'power'")])
def test_a_setting_that_says_nothing_is_refused(text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        read_assignments([text])


def test_precedence(tmp_path: Path) -> None:
    file = tmp_path / "options.toml"
    file.write_text(
        'expansion-size = 100\ngamma = 2\nseeds = [3, 4]\nclass_order = 1993\nquick = true\nout = "there"\n'
    )
    filed = read_options(file)
    experiment, handling = combine({"gamma": 5.0, "out": "here"}, filed)
    assert experiment.gamma == 5.0  # command line over file
    assert experiment.expansion_size == 100  # file over preset
    assert experiment.phases == QUICK["phases"]  # preset over default
    assert experiment.method == "ds-al"  # default
    assert (experiment.seeds, experiment.class_order) == ((3, 4), "1993")
    assert handling.out == "here"


def test_the_papers_values() -> None:
    experiment, _ = combine({"paper": True}, {})
    assert (experiment.expansion_size, experiment.compensation, experiment.phases) == (8192, 0.6, 25)
    acil, _ = combine({"paper": True, "method": "acil"}, {})
    assert (acil.expansion_size, acil.compensation) == (PAPER["expansion_size"], None)


def test_an_unknown_key_is_answered_with_the_nearest(tmp_path: Path) -> None:
    file = tmp_path / "options.toml"
    file.write_text("expansion_sise = 100\n")
    with pytest.raises(UnknownNameError, match="did you mean 'expansion-size'"):
        read_options(file)


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
