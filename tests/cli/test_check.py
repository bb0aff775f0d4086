"""``dsal check`` and ``dsal info`` on whole, damaged and hostile files; names cannot steer a terminal."""

from pathlib import Path

import pytest
from rich.table import Table
from typer.testing import CliRunner

from dsal.backbones import Backbone
from dsal.cli.main import app
from dsal.cli.say import printable
from dsal.cli.table import print_table
from dsal.errors import FileFormatError, InputError
from dsal.files.model_schema import IMAGE_MODEL
from dsal.files.tensors import load_tensors, open_tensors, save_tensors
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
    assert (whole.exit_code, "is intact" in whole.output) == (0, True)
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


def damage(path: Path, *names: str) -> None:
    """Change a byte of each of these arrays."""
    data = bytearray(path.read_bytes())
    with open_tensors(path, IMAGE_MODEL) as opened:
        for name in names:
            data[opened.arrays[name].start] ^= 1
    path.write_bytes(data)


def test_the_last_whole_version_is_saved(path: Path, album: Path, tmp_path: Path) -> None:
    """A renamed class shares all arrays with the version before it, a lesson none of the classifier's."""
    run, out = CliRunner(), tmp_path / "saved.dsal"
    before = ImageModel.load(path)
    model = ImageModel.load(path)
    model.notes = {"changes": [{"key": "lost"}]}
    model.learn(album / "second")
    model.rename("char 37", "renamed")
    model.save(path)
    whole = path.read_bytes()
    damage(path, "classifier.main.weights")
    found = run.invoke(app, ["check", str(path), "--save", str(out)])
    assert (found.exit_code, f"it is now in {out}" in found.output) == (1, True)
    assert "'learned" in found.output  # not the version before the class was renamed, which is damaged, too
    saved = ImageModel.load(out)
    assert (saved.version_id, saved.classes, saved.notes) == (before.version_id, before.classes, {})
    assert saved.predict(album / "test") == before.predict(album / "test")
    assert [version.change for version in saved.history] == [version.change for version in before.history]
    assert run.invoke(app, ["check", str(out)]).exit_code == 0
    assert isinstance(run.invoke(app, ["check", str(path), "--save", str(path)]).exception, InputError)
    path.write_bytes(whole)
    damage(path, "backbone.feature_mean")
    out.unlink()
    found = run.invoke(app, ["check", str(path), "--save", str(out)])
    assert (found.exit_code, "no earlier version" in found.output, out.exists()) == (1, True, False)


def test_a_model_that_cannot_predict_is_not_whole(path: Path) -> None:
    arrays, facts = load_tensors(path, IMAGE_MODEL)
    arrays["novelty.products"][:] = -1.0
    save_tensors(path, arrays, facts)  # with the right checksums
    found = CliRunner().invoke(app, ["check", str(path)]).exception
    assert isinstance(found, FileFormatError)
    assert "cannot predict" in str(found)


def test_control_characters_are_escaped() -> None:
    assert printable("a\x07\x9b\u202e\r b\tc\nd") == "a\\u0007\\u009b\\u202e\\u000d b\tc\nd"


def test_names_in_tables_are_text(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(Table("a\x1b[2Jb", "[red]c", title="[link=file:x]\x1bd"))
    table = capsys.readouterr().out
    assert "\x1b" not in table
    assert all(name in table for name in ("a\\u001b[2Jb", "[red]c", "[link=file:x]\\u001bd"))


def test_a_deeply_nested_configuration_is_refused(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text("x = " + "[" * 100_000)
    with pytest.raises(FileFormatError, match="is not TOML"):
        read_config(tmp_path)
