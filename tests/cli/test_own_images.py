"""The commands on own images, as a user types them."""

import csv
import io
import json
import os
import resource
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from PIL import Image

from dsal.backbones import Backbone, load_backbone, save_backbone
from dsal.files.lock import model_lock
from dsal.image_model import ImageModel

from .conftest import Call

SMALL = ("--expansion-size", "128")


@pytest.fixture(scope="session")
def first_model(album: Path, weights: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of the four characters of ``first``."""
    path = tmp_path_factory.mktemp("model") / "m.dsal"
    taught = ImageModel(load_backbone(weights), expansion_size=128)
    taught.learn(album / "first")
    taught.save(path)
    return path


@pytest.fixture
def model(first_model: Path, tmp_path: Path) -> Path:
    """A copy of it, where commands run."""
    return Path(shutil.copy(first_model, tmp_path))


def test_learn_makes_a_model(call: Call, album: Path, weights: Path, first_model: Path, tmp_path: Path) -> None:
    outcome = call("learn", album / "first", "--model", "m.dsal", "--backbone", weights, *SMALL)
    assert outcome.code == 0, outcome.err
    assert "new classes: char 0, char 111, char 37, char 74" in outcome.out
    assert "learned 60 images; m.dsal now knows 4 classes from 60 images" in outcome.out
    assert "leave-one-out accuracy" in outcome.out
    assert (tmp_path / "m.dsal").read_bytes() == first_model.read_bytes()


def test_a_life_of_a_model(call: Call, model: Path, album: Path, weights: Path) -> None:
    assert call("learn", album / "second", "--model", model, "--backbone", weights).code == 0
    answers = json.loads(call("predict", model, album / "test", "--json", "--top-k", "2").out)
    assert len(answers) == 50
    assert set(answers[0]) == {"path", "label", "score", "top_k", "novelty", "novel"}
    assert answers[0]["top_k"][0] == {"label": answers[0]["label"], "score": answers[0]["score"]}
    record = json.loads(call("evaluate", model, album / "test", "--json").out)
    assert record["accuracy"] > 0.5
    assert record["unknown"]["images"] == 15
    assert "images of classes never taught" in call("evaluate", model, album / "test").out
    known = json.loads(call("info", model, "--json").out)
    assert known["phases"] == 2
    assert known["images"] == 105
    assert len(known["classes"]) == 7
    assert call("forget", model, album / "second").out.startswith("forgot 45 images")
    assert "classes: 4" in call("info", model).out
    assert "can learn more: yes" in call("info", model).out


def test_merge(call: Call, model: Path, album: Path, weights: Path, tmp_path: Path) -> None:
    assert call("learn", album / "second", "--model", "b.dsal", "--backbone", weights, *SMALL).code == 0
    outcome = call("merge", model, "b.dsal", "--out", "both.dsal")
    assert outcome.out.startswith("both.dsal knows 7 classes from 105 images\n")
    assert "estimated from the merged sums" in outcome.out
    assert call("merge", model, model, "--out", "both.dsal").code == 2
    assert call("merge", model, "--out", "both.dsal").code == 2


def test_text_output_flags_the_unknown(call: Call, model: Path, album: Path) -> None:
    out = call("predict", model, album / "unseen", "--threshold", "0").out
    assert out.count("unknown; nearest:") > 30


@pytest.mark.parametrize(
    ("arguments", "code", "reason"),
    [
        (("predict", "m.dsal", "nowhere.png"), 2, "no such image: nowhere.png"),
        (("predict", "nowhere.dsal", "m.dsal"), 1, "no such file: nowhere.dsal"),
        (("predict", "m.dsal", "m.dsal"), 1, "cannot read the image m.dsal"),
        (("learn", "nowhere", "--model", "m.dsal"), 1, "no such folder or file: nowhere"),
        (("learn", "empty", "--model", "m.dsal"), 2, "empty has no class folders"),
        (("learn", "full", "--model", "m.dsal", "--gamma", "1"), 2, "can only be set for a new model"),
        (("learn", "full", "--model", "m.dsal", "--backbone", "efficientnet-lit0"), 2, "did you mean"),
        (("learn", "full", "--model", "no/m.dsal"), 1, "there is no folder"),
        (("learn", "full", "--model", "/proc/m.dsal"), 2, "cannot write m.dsal to the folder /proc"),
        (("learn", "full", "--model", "new.dsal", "--gamma", "much"), 2, "must be a positive number or auto"),
        (("predict", "m.dsal", "full", "--device", "cuda:7"), 2, "cannot compute on the device 'cuda:7'"),
        (("predict", "m.dsal", "full", "--device", "gpu"), 2, "on the device 'gpu': unknown type of device"),
        (("rename", "m.dsal", "char 1", "alpha"), 2, "unknown class 'char 1'"),
        (("drop", "m.dsal", "char 1"), 2, "unknown class 'char 1'"),
        (("undo", "m.dsal"), 2, "only one lesson"),
        (("relabel", "m.dsal", "full", "--to", "alpha"), 2, "were never learned"),
        (("relabel", "m.dsal", "full", "full"), 2, "--to CLASS"),
        (("forget", "nowhere.dsal", "full"), 1, "no such file: nowhere.dsal"),
    ],
)
def test_mistakes(
    call: Call,
    model: Path,
    album: Path,
    tmp_path: Path,
    arguments: tuple[str, ...],
    code: int,
    reason: str,
) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "full").symlink_to(album / "second")
    before = model.read_bytes()
    outcome = call(*arguments)
    assert outcome.code == code
    assert reason in outcome.err
    assert "Traceback" not in outcome.err
    assert model.read_bytes() == before


def test_a_model_made_with_another_backbone(call: Call, model: Path, album: Path, tmp_path: Path) -> None:
    torch.manual_seed(7)
    save_backbone(tmp_path / "other.safetensors", Backbone(ImageModel.load(model).backbone.card))
    before = model.read_bytes()
    outcome = call("learn", album / "second", "--model", model, "--backbone", tmp_path / "other.safetensors")
    assert outcome.code == 2
    assert "was made with the backbone resnet32" in outcome.err
    assert model.read_bytes() == before


def test_a_disk_that_fills_up_while_saving(model: Path, album: Path) -> None:
    """A limit on file sizes makes the kernel refuse to write on, as a full disk does."""
    before = model.read_bytes()

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))

    done = subprocess.run(
        [sys.executable, "-m", "dsal", "learn", album / "second", "--model", model],
        preexec_fn=limit,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1, done.stderr
    assert "could not write" in done.stderr
    assert "Traceback" not in done.stderr
    assert model.read_bytes() == before
    assert [path.name for path in model.parent.iterdir()] == ["m.dsal"]


def limited(gigabytes: float, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """``python -m dsal ARGUMENTS`` with little address space; a hang fails."""

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (int(gigabytes * 1e9),) * 2)

    return subprocess.run(
        [sys.executable, "-m", "dsal", *map(str, arguments)],
        preexec_fn=limit,
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )


def test_little_memory_is_refused_at_once(model: Path, album: Path) -> None:
    before = model.read_bytes()
    done = limited(0.8, "learn", album / "second", "--model", model)
    assert done.returncode == 1
    assert done.stderr.startswith("error: dsal learn needs 2.0 GB of address space")
    assert done.stderr.count("\n") == 1
    assert model.read_bytes() == before
    assert limited(0.8, "info", model).returncode == 0
    assert limited(0.8, "rename", model, "char 0", "alpha").returncode == 0


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (MemoryError(), "error: out of memory"),
        (RuntimeError("can't start new thread"), "error: out of memory: can't start new thread"),
        (ImportError("x.so: failed to map segment from shared object"), "error: out of memory: x.so: failed"),
    ],
)
def test_memory_that_runs_out_later_is_one_line(
    error: Exception, line: str, call: Call, model: Path, album: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def learn(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(ImageModel, "learn", learn)
    outcome = call("learn", album / "second", "--model", model)
    assert outcome.code == 1
    assert outcome.err.startswith(line)
    assert outcome.err.count("\n") == 1


@pytest.mark.slow
@pytest.mark.parametrize("gigabytes", [2.0, 2.1, 2.2, 2.4, 2.6])
def test_little_memory_never_hangs(gigabytes: float, model: Path, album: Path) -> None:
    before = model.read_bytes()
    done = limited(gigabytes, "learn", album / "second", "--model", model)
    assert done.returncode in (0, 1)
    if done.returncode:
        assert "error: " in done.stderr
        assert "Traceback" not in done.stderr
        assert model.read_bytes() == before


def test_export_wants_to_know_what_to_write(call: Call, model: Path) -> None:
    outcome = call("export", model)
    assert outcome.code == 2
    assert "nothing to write" in outcome.err


def test_corrections(call: Call, model: Path, album: Path) -> None:
    assert call("learn", album / "second", "--model", model).code == 0
    assert call("rename", model, "char 148", "alpha").out == "char 148 is now called alpha\n"
    assert json.loads(call("info", model, "--json").out)["undo"][0] == "renamed char 148 to alpha"
    assert "undo: renamed char 148 to alpha; learned 45 images of" in call("info", model).out
    assert call("undo", model).out.startswith("undone: renamed char 148 to alpha; ")
    assert "redo: renamed char 148 to alpha\n" in call("info", model).out
    assert call("redo", model).out.startswith("redone: renamed char 148 to alpha; ")
    assert "nothing to redo" in call("redo", model).err
    assert call("undo", model).code == 0
    first = sorted((album / "second" / "char 148").iterdir())[0]
    moved = call("relabel", model, first, "--to", "char 185")
    assert moved.out.startswith("relabelled 1 image; ")
    assert "with the main stream alone" in moved.out
    again = call("learn", album / "second", "--model", model).out
    assert f"{first} was learned as char 185, not char 148" in again
    assert "learned before and skipped: 44 images" in again
    assert call("relabel", model, album / "second").out.startswith("relabelled 1 image; ")
    dropped = call("drop", model, "char 222")
    assert "knows 6 classes from 90 images" in dropped.out
    assert "dsal forget" in dropped.out


def test_one_image_is_not_called_images(call: Call, model: Path, album: Path, tmp_path: Path) -> None:
    """A copy in a folder was not learned before: it is a copy. And one image is one image."""
    place = tmp_path / "more" / "char 0"
    place.mkdir(parents=True)
    for name in ("one.png", "copy.png"):
        shutil.copy(sorted((album / "second" / "char 148").iterdir())[0], place / name)
    said = call("learn", tmp_path / "more", "--model", model).out
    assert "copies in this lesson, which do not count: 1 image\n" in said
    assert "learned before" not in said
    assert "learned 1 image; " in said
    (place / "copy.png").write_text("no image")
    again = call("learn", tmp_path / "more", "--model", model, "--skip-broken")
    assert "learned before and skipped: 1 image (" in again.out
    assert "skipped because they could not be read: 1 file\n" in again.err


def test_forget_says_what_it_costs(call: Call, model: Path, album: Path, tmp_path: Path) -> None:
    some = tmp_path / "some" / "char 0"
    some.mkdir(parents=True)
    shutil.copy(album / "first" / "char 0" / "3.png", some)
    said = call("forget", model, tmp_path / "some").out
    assert said.startswith("forgot 1 image; ")
    assert "with the main stream alone" in said
    assert "this cannot be undone" in said
    assert "nothing to undo" in call("undo", model).err
    assert json.loads(call("info", model, "--json").out)["undo"] == []


def test_what_is_passed_over_is_counted(call: Call, model: Path, album: Path, tmp_path: Path) -> None:
    shutil.copytree(album / "second", tmp_path / "more")
    shutil.copy(album / "first" / "char 0" / "3.png", tmp_path / "more" / "loose.png")
    for name in ("a.mov", "b.mov", "notes.txt"):
        (tmp_path / "more" / "char 148" / name).touch()
    err = call("learn", tmp_path / "more", "--model", model).err
    assert "passed over: 2 .mov, 1 image outside the class folders, 1 .txt" in err


def test_two_writers(start: Callable[..., "subprocess.Popen[str]"], call: Call, model: Path, album: Path) -> None:
    """Two lessons at once, one of them waits; and a third, while the model is held, is refused."""
    with model_lock(model):
        refused = call("learn", album / "second", "--model", model)
    assert (refused.code, "being written by another process" in refused.err) == (1, True)
    both = [start("learn", album / part, "--model", model, "--wait", "120") for part in ("second", "unseen")]
    assert [process.wait() for process in both] == [0, 0]
    assert len(ImageModel.load(model).classes) == 10


@pytest.mark.slow
def test_twenty_rounds_of_two_writers(
    start: Callable[..., "subprocess.Popen[str]"], model: Path, album: Path, tmp_path: Path
) -> None:
    """Every lesson that was reported is in the model, whether the other writer waited or was refused."""
    reported = 4
    for number in range(20):
        lessons = []
        for side in "ab":
            folder = tmp_path / f"{number}{side}"
            shutil.copytree(album / "second" / "char 148", folder / f"class {number}{side}")
            for path in (folder / f"class {number}{side}").iterdir():
                image = Image.open(path)
                image.putpixel((number, "ab".index(side)), 100)  # content of its own: what was learned is left out
                image.save(path)
            wait = ("--wait", "120") if number % 2 else ()
            lessons.append(start("learn", folder, "--model", model, *wait))
        codes = [lesson.wait() for lesson in lessons]
        assert 0 in codes
        if number % 2:
            assert codes == [0, 0]
        reported += codes.count(0)
        assert len(ImageModel.load(model).classes) == reported


def test_answers_as_lines(
    call: Call, model: Path, album: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """JSON lines and CSV say what --json says; files come from folders, quoted patterns and stdin."""
    folder = album / "test" / "char 0"
    expected = json.loads(call("predict", model, folder, "--json").out)
    lines = call("predict", model, folder / "*.png", "--json-lines").out.splitlines()
    assert [json.loads(line) for line in lines] == expected
    monkeypatch.setattr(sys, "stdin", io.StringIO("".join(f"{record['path']}\n" for record in expected)))
    rows = list(csv.DictReader(io.StringIO(call("predict", model, "-", "--csv").out)))
    assert [(row["path"], row["label"]) for row in rows] == [(r["path"], r["label"]) for r in expected]
    assert "no file matches the pattern" in call("predict", model, tmp_path / "*.jpg").err
    assert "choose one of" in call("predict", model, folder, "--csv", "--json").err


def test_a_fifo_among_the_images_is_refused_by_name(call: Call, model: Path, album: Path, tmp_path: Path) -> None:
    """Opening it would wait for ever."""
    fifo, table = tmp_path / "x.jpg", tmp_path / "table.csv"
    os.mkfifo(fifo)
    table.write_text("path,label\nx.jpg,a\n")
    for arguments in (("predict", model, fifo), ("learn", table, "--model", model), ("learn", fifo, "--model", model)):
        outcome = call(*arguments)
        assert outcome.code == 1
        assert f"{fifo} is a FIFO, not a file" in outcome.err
    outcome = call("predict", fifo, album / "test")
    assert (outcome.code, "is a FIFO, not a file" in outcome.err) == (1, True)


def test_a_read_only_model_is_refused_before_the_work(call: Call, model: Path, album: Path, tmp_path: Path) -> None:
    before = model.read_bytes()
    model.chmod(0o444)
    for arguments in (
        ("learn", tmp_path / "not even there", "--model", model),
        ("forget", model, album / "first"),
        ("merge", "no.dsal", "none.dsal", "--out", model),
        ("export", "no.dsal", "--torch", model),
        ("extract", "--backbone", "none", "--out", model),
        ("pretrain", "--out", model, "--dataset", "none"),
    ):
        outcome = call(*arguments)
        assert outcome.code == 1
        assert "read-only" in outcome.err, (arguments, outcome.err)
    assert model.read_bytes() == before


def test_a_linked_model_is_changed_where_it_is(call: Call, model: Path, album: Path, tmp_path: Path) -> None:
    link = tmp_path / "link.dsal"
    link.symlink_to(model.name)
    assert call("learn", album / "second", "--model", link).code == 0
    assert link.is_symlink()
    assert len(ImageModel.load(model).classes) == 7


def test_a_zip_is_a_folder(call: Call, album: Path, weights: Path, first_model: Path, tmp_path: Path) -> None:
    archive = shutil.make_archive(str(tmp_path / "album"), "zip", album, "first")  # with the folder around the classes
    outcome = call("learn", archive, "--model", "m.dsal", "--backbone", weights, *SMALL)
    assert outcome.code == 0, outcome.err
    assert (tmp_path / "m.dsal").read_bytes() == first_model.read_bytes()
    assert json.loads(call("evaluate", "m.dsal", archive, "--json").out)["known"]["images"] == 60
    assert "skipped" in call("learn", archive, "--model", "m.dsal").out
    Path(archive).write_bytes(b"PK")
    outcome = call("evaluate", "m.dsal", archive)
    assert (outcome.code, outcome.err.count("\n")) == (1, 1)
    assert "is not a zip archive" in outcome.err


def test_suggest(call: Call, model: Path, album: Path) -> None:
    """As text and as JSON: the same images in the same order, none that was learned, nothing written."""
    before = model.read_bytes()
    records = json.loads(call("suggest", model, album, "--count", "7", "--json").out)
    assert len(records) == 7
    assert not any(Path(record["path"]).is_relative_to(album / "first") for record in records)
    assert set(records[0]) == {"path", "label", "score", "top_k", "novelty", "novel"}
    lines = call("suggest", model, album, "--count", "7").out.splitlines()
    assert [line.split(": ")[0] for line in lines] == [record["path"] for record in records]
    assert call("suggest", model, album, "--count", "0").code == 2
    assert "learned before" in call("suggest", model, album / "first").err
    assert model.read_bytes() == before
