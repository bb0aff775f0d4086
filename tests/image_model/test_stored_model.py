"""Changes of a model file without PyTorch: the file they leave is the one that a model in memory would write."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dsal import DSALClassifier, FileFormatError, InputError
from dsal.backbones import Backbone
from dsal.data.images.labelled_files import read_files
from dsal.files.model_schema import IMAGE_MODEL
from dsal.files.tensors import StoredArray, load_tensors, open_tensors, save_tensors
from dsal.image_model import ImageModel
from dsal.image_model.stored_model import StoredModel

Change = Callable[[Any], object]
CHANGES: dict[str, Change] = {
    "rename": lambda model: model.rename("char 0", "alpha"),
    "drop": lambda model: model.drop("char 37"),
    "undo": lambda model: model.undo(),
}


@pytest.fixture
def file(backbone: Backbone, album: Path, tmp_path: Path) -> Path:
    """Two lessons and a change that was undone."""
    model = ImageModel(backbone, DSALClassifier(expansion_size=64))
    model.learn(album / "first")
    model.learn(album / "second")
    model.rename("char 111", "beta")
    model.undo()
    model.save(tmp_path / "m.dsal")
    return tmp_path / "m.dsal"


def edit(path: Path, *changes: Change) -> set[str]:
    """Change a file, and return the names of the arrays that were read."""
    with open_tensors(path, IMAGE_MODEL) as opened:
        read: set[str] = set()
        arrays = {name: Noted(*vars(array).values(), read) for name, array in opened.arrays.items()}  # type: ignore[call-arg]
        stored = StoredModel.of({**arrays}, opened.facts)
        for change in changes:
            change(stored)
        stored.write(path)
    return read


class Noted(StoredArray):
    """An array that notes when it is read."""

    def __init__(self, *fields: Any) -> None:
        super().__init__(*fields[:-1])
        object.__setattr__(self, "notes", fields[-1])

    def read(self) -> Any:
        self.notes.add(self.name)  # type: ignore[attr-defined]
        return super().read()


@pytest.mark.parametrize(
    "changes",
    [["rename"], ["drop"], ["undo"], ["redo"], ["drop", "rename", "undo", "undo", "redo"], ["undo", "drop", "undo"]],
    ids="-".join,
)
def test_equals_the_model_in_memory(changes: list[str], file: Path, tmp_path: Path) -> None:
    todo = [{**CHANGES, "redo": lambda model: model.redo()}[name] for name in changes]
    model = ImageModel.load(file)
    for change in todo:
        change(model)
    model.save(tmp_path / "expected.dsal")
    for change in todo:  # each through the file
        edit(file, change)
    assert file.read_bytes() == (tmp_path / "expected.dsal").read_bytes()


@pytest.fixture
def large(monkeypatch: pytest.MonkeyPatch) -> None:
    """All arrays count as large, as triangles are: none is read to find out whether it equals another one."""
    monkeypatch.setattr("dsal.image_model.version._COMPARED", -1)


@pytest.mark.usefixtures("large")
def test_only_what_a_change_touches_is_read(file: Path) -> None:
    assert edit(file, CHANGES["rename"]).isdisjoint(name for name in NAMES if "main" in name or "comp" in name)
    assert edit(file, CHANGES["undo"]) <= {"classifier.calibration", "novelty.counts"}
    read = edit(file, CHANGES["drop"])
    assert {name for name in read if name.endswith("factor")} == {"classifier.main.factor"}
    assert not any(name.startswith(("backbone.", "history.", "undone.")) for name in read)


NAMES = [f"classifier.{stream}.{part}" for stream in ("main", "comp") for part in ("factor", "targets", "weights")]


def test_earlier_versions_keep_the_names_of_their_arrays(file: Path) -> None:
    """Under another name an array would have to be hashed anew, a triangle among them."""

    def named() -> set[str]:
        with open_tensors(file, IMAGE_MODEL) as opened:
            return {name for name in opened.arrays if name.startswith("history.")}

    before = named()
    assert any(name.endswith("main.factor") for name in before)
    for change in (CHANGES["rename"], CHANGES["undo"], CHANGES["rename"], CHANGES["drop"]):
        edit(file, change)
        assert before <= named()


def test_earlier_versions_may_be_numbered(file: Path) -> None:
    """As in files of earlier programs."""
    model = ImageModel.load(file)
    arrays, facts = load_tensors(file, IMAGE_MODEL)
    numbers = {
        f"{kind}.{one['id']}": f"{kind}.{n}" for kind in ("history", "undone") for n, one in enumerate(facts[kind])
    }

    def numbered(name: str) -> str:
        prefix = ".".join(name.split(".")[:2])
        return name.replace(prefix, numbers[prefix]) if prefix in numbers else name

    for document in (*facts["history"], *facts["undone"]):
        document["same"] = {name: numbered(stored) for name, stored in document["same"].items()}
    old = file.with_name("old.dsal")
    save_tensors(old, {numbered(name): array for name, array in arrays.items()}, facts)
    with open_tensors(old, IMAGE_MODEL) as opened:
        assert {name.split(".")[1] for name in opened.arrays if name.startswith("history.")} == {"0"}
    edit(old, CHANGES["rename"])
    found = ImageModel.load(old)
    found.undo()
    assert found.undo() == model.undo()
    assert found.version_id == model.version_id
    probe = np.random.default_rng(0).normal(size=(5, model.classifier.n_features_in_))
    np.testing.assert_array_equal(*(each.classifier.decision_function(probe) for each in (found, model)))


def test_a_model_that_can_only_predict_is_renamed(file: Path, tmp_path: Path) -> None:
    ImageModel.load(file).save(tmp_path / "small.dsal", learning=False)
    edit(tmp_path / "small.dsal", CHANGES["rename"], CHANGES["drop"])
    small = ImageModel.load(tmp_path / "small.dsal")
    assert small.classes == ("alpha", "char 111", "char 74", "char 148", "char 185", "char 222")
    assert not small.learns_on
    assert small.undo() == "dropped char 37"


def test_mistakes_change_nothing(file: Path) -> None:
    before = file.read_bytes()
    for change, message in (
        (lambda model: model.rename("char 0", "char 37"), "a class already"),
        (lambda model: model.rename("char 0", "Unknown"), "cannot be the name"),
        (lambda model: model.drop("char 38"), "did you mean 'char 37'"),
        (lambda model: [model.redo(), model.redo()], "nothing to redo"),
    ):
        with pytest.raises(InputError, match=message):
            edit(file, change)
    assert file.read_bytes() == before


@pytest.mark.usefixtures("large")
def test_damage_is_not_passed_on_under_another_name(file: Path, tmp_path: Path) -> None:
    """What undo moves is checked; what keeps its name keeps its checksum, so the next reader finds the damage."""
    with open_tensors(file, IMAGE_MODEL) as opened:
        place = opened.arrays["classifier.main.factor"].start
    content = bytearray(file.read_bytes())
    content[place] ^= 1
    file.write_bytes(content)
    shutil.copy(file, tmp_path / "copy.dsal")
    with pytest.raises(FileFormatError, match=r"the SHA-256 of classifier.main.factor does not match"):
        edit(file, CHANGES["undo"])
    assert file.read_bytes() == content
    edit(tmp_path / "copy.dsal", CHANGES["rename"])
    with pytest.raises(FileFormatError, match=r"the SHA-256 of classifier.main.factor does not match"):
        ImageModel.load(tmp_path / "copy.dsal")


def test_one_lesson_after_the_other(file: Path, album: Path) -> None:
    """A file that was corrected so is learned on like any other."""
    edit(file, CHANGES["drop"], CHANGES["rename"])
    model = ImageModel.load(file)
    files = read_files(album / "unseen")
    assert model.learn((files.paths[:4], files.labels[:4])).images == 4
    assert model.counts["alpha"] == 15
