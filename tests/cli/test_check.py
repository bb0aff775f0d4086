"""``dsal check`` and ``dsal info`` on whole, damaged and hostile files; names cannot steer a terminal."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from dsal.backbones import Backbone
from dsal.cli.main import app
from dsal.cli.say import printable
from dsal.errors import FileFormatError
from dsal.image_model import ImageModel
from dsal.protocol.runs import read_config


@pytest.fixture
def path(album: Path, backbone: Backbone, tmp_path: Path) -> Path:
    model = ImageModel(backbone, expansion_size=64)
    model.learn(album / "first")
    model.rename("char 0", "a\x1b[2Jb")
    model.save(tmp_path / "m.dsal")
    return tmp_path / "m.dsal"


def test_whole_and_damaged_files(path: Path) -> None:
    run = CliRunner()
    whole = run.invoke(app, ["check", str(path)])
    assert (whole.exit_code, "is whole" in whole.output) == (0, True)
    shown = run.invoke(app, ["info", str(path)])
    assert shown.exit_code == 0
    assert "\x1b" not in shown.output
    assert "a\\u001b[2Jb: 15" in shown.output
    data = path.read_bytes()
    for torn in (data[:-1] + bytes([data[-1] ^ 1]), data[:-100]):
        path.write_bytes(torn)
        found = run.invoke(app, ["check", str(path)])
        assert (found.exit_code, "is damaged" in found.output) == (1, True)
        assert isinstance(run.invoke(app, ["info", str(path)]).exception, FileFormatError)
    path.write_bytes(data[:1000])
    assert isinstance(run.invoke(app, ["check", str(path)]).exception, FileFormatError)


def test_control_characters_are_escaped() -> None:
    assert printable("a\x07\x9b\u202e\r b\tc\nd") == "a\\u0007\\u009b\\u202e\\u000d b\tc\nd"


def test_a_deeply_nested_configuration_is_refused(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text("x = " + "[" * 100_000)
    with pytest.raises(FileFormatError, match="is not TOML"):
        read_config(tmp_path)
