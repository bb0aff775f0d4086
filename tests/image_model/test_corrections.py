"""Corrections: undo, rename, drop and relabel against models that were taught right from the start."""

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from dsal import DSALClassifier, InputError
from dsal.backbones import Backbone
from dsal.data.images.labelled_files import read_files
from dsal.errors import StaleVersionError
from dsal.files.tensors import load_tensors
from dsal.image_model import ImageModel
from dsal.image_model.novelty import ClassStatistics
from dsal.image_model.version import Timeline


def new(backbone: Backbone) -> ImageModel:
    return ImageModel(backbone, DSALClassifier(expansion_size=256))


def weights(model: ImageModel) -> dict[str, NDArray[np.float64]]:
    return dict(zip(model.classes, model.classifier.coef_main_.T, strict=True))


def same_main_stream(a: ImageModel, b: ImageModel) -> None:
    assert set(a.classes) == set(b.classes)
    for label, expected in weights(b).items():
        np.testing.assert_allclose(weights(a)[label], expected, rtol=1e-8, atol=1e-8)


@pytest.fixture
def taught(backbone: Backbone, album: Path) -> ImageModel:
    model = new(backbone)
    model.learn(album / "first")
    return model


def test_undo_is_exact_and_travels_in_the_file(taught: ImageModel, album: Path, tmp_path: Path) -> None:
    taught.save(tmp_path / "before.dsal")
    before = ImageModel.load(tmp_path / "before.dsal")
    taught.learn(album / "second")
    taught.save(tmp_path / "m.dsal")
    again = ImageModel.load(tmp_path / "m.dsal")
    assert again.undo() == "learned 45 images of char 148, char 185, char 222"
    for model in (again, before):  # what follows is the same, too
        model.timeline = Timeline(model.version_id)
        model.save(tmp_path / f"{id(model)}.dsal")
    assert (tmp_path / f"{id(again)}.dsal").read_bytes() == (tmp_path / f"{id(before)}.dsal").read_bytes()
    for model in (again, before):
        model.learn(album / "second")
    assert again.predict(album / "test") == before.predict(album / "test")


@pytest.mark.parametrize("change", ["learn", "merge", "relabel", "rename", "drop"])
def test_every_change_can_be_undone(change: str, taught: ImageModel, backbone: Backbone, album: Path) -> None:
    other = new(backbone)
    other.learn(album / "second")
    expected, coefficients = taught.predict(album / "test"), taught.classifier.coef_main_.copy()
    {
        "learn": lambda: taught.learn(album / "second"),
        "merge": lambda: taught.merge(other),
        "relabel": lambda: taught.relabel(part(album)[0], "char 999"),
        "rename": lambda: taught.rename("char 0", "alpha"),
        "drop": lambda: taught.drop("char 0"),
    }[change]()
    assert len(taught.history) == 2
    after, ids = taught.predict(album / "test"), [taught.version_id]
    undone = taught.undo()
    ids.append(taught.version_id)
    assert np.array_equal(taught.classifier.coef_main_, coefficients)
    assert taught.predict(album / "test") == expected
    assert taught.classifier.compensation == 0.6
    assert taught.redo() == undone
    assert taught.predict(album / "test") == after
    ids.append(taught.version_id)
    assert taught.undo() == undone
    assert np.array_equal(taught.classifier.coef_main_, coefficients)
    assert [*ids, taught.version_id] == [ids[0], ids[1], ids[0], ids[1]]
    taught.undo()
    with pytest.raises(InputError, match="nothing to undo"):
        taught.undo()


def part(album: Path) -> tuple[list[Path], list[str]]:
    """Three images of the first class."""
    files = read_files(album / "first")
    return list(files.paths[:3]), list(files.labels[:3])


def test_ten_changes_back_and_forth_through_a_file(taught: ImageModel, album: Path, tmp_path: Path) -> None:
    """Every state is that of its time, bit for bit; what did not change is in the file once."""
    names, states = [f"name {number}" for number in range(9)], [(taught.version_id, taught.predict(album / "test"))]
    taught.save(tmp_path / "m.dsal")
    size = (tmp_path / "m.dsal").stat().st_size
    for before, after in zip(["char 0", *names], names, strict=False):
        taught.rename(before, after)
        states.append((taught.version_id, taught.predict(album / "test")))
    taught.learn(album / "second")
    states.append((taught.version_id, taught.predict(album / "test")))
    assert len({version for version, _ in states}) == 11
    taught.save(tmp_path / "m.dsal")
    arrays = load_tensors(tmp_path / "m.dsal")[0]
    assert sum(name.startswith("history.") and name.endswith("factor") for name in arrays) == 2  # of one version
    assert (tmp_path / "m.dsal").stat().st_size < 3 * size
    model = ImageModel.load(tmp_path / "m.dsal")
    assert model.history_bytes == taught.history_bytes
    for number in range(9, -1, -1):
        model.undo()
        assert (model.version_id, model.predict(album / "test")) == states[number]
        model.save(tmp_path / "m.dsal")
        model = ImageModel.load(tmp_path / "m.dsal")
    for number in range(1, 11):
        model.redo()
        assert (model.version_id, model.predict(album / "test")) == states[number]
    model.rename("char 37", "other")
    with pytest.raises(InputError, match="nothing to redo"):
        model.redo()


def test_history_is_bounded_by_its_size(taught: ImageModel, album: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = read_files(album / "second")
    one = taught.classifier._learner.size**2 * 8  # two triangles
    monkeypatch.setattr("dsal.image_model.version.MAX_BYTES", int(3.5 * one))
    for row in range(6):
        taught.learn((files.paths[row : row + 1], files.labels[:1]))
        assert taught.history_bytes < 3.5 * one
    assert 2 <= len(taught.history) <= 3
    monkeypatch.setattr("dsal.image_model.version.MAX_BYTES", 0)
    taught.rename("char 0", "alpha")
    assert taught.undo() == "renamed char 0 to alpha"  # the last change can always be undone
    assert taught.redo() == "renamed char 0 to alpha"


def test_a_change_against_an_old_version_is_refused_and_told_why(taught: ImageModel, album: Path) -> None:
    seen = taught.version_id
    taught.learn(album / "second")
    taught.rename("char 0", "alpha")
    now, answers = taught.version_id, taught.predict(album / "test")
    with pytest.raises(StaleVersionError, match=r"char 222; renamed char 0 to alpha\)") as refused:
        taught.undo(expected_version=seen)
    assert refused.value.since == ("learned 45 images of char 148, char 185, char 222", "renamed char 0 to alpha")
    assert taught.predict(album / "test") == answers
    assert taught.undo(expected_version=now) == "renamed char 0 to alpha"
    with pytest.raises(StaleVersionError, match="undone: renamed char 0 to alpha"):
        taught.timeline.check(now)
    with pytest.raises(StaleVersionError, match="in the meantime: look at it again"):
        taught.redo(expected_version="unknown")


def test_undo_of_the_first_lesson(taught: ImageModel, album: Path) -> None:
    expected = taught.predict(album / "test")
    taught.undo()
    assert taught.classes == ()
    taught.redo()
    assert taught.predict(album / "test") == expected
    taught.undo()
    assert taught.learn(album / "second").images == 45


def test_rename(taught: ImageModel, backbone: Backbone, album: Path) -> None:
    files = read_files(album / "first")
    right = new(backbone)
    right.learn((files.paths, ["alpha" if label == "char 0" else label for label in files.labels]))
    taught.rename("char 0", "alpha")
    same_main_stream(taught, right)
    assert taught.counts == dict.fromkeys(taught.classes, 15)
    assert taught.learn((files.paths[:1], ["alpha"])).repeated == 1  # its images are known by the new name
    with pytest.raises(InputError, match="a class already"):
        taught.rename("alpha", "char 37")
    with pytest.raises(InputError, match="did you mean 'char 74'"):
        taught.rename("char 73", "beta")
    for name in ("", "  ", "unknown", "None of these "):
        with pytest.raises(InputError, match=r"a class name must not be|cannot be the name of a class"):
            taught.rename("alpha", name)
        with pytest.raises(InputError, match=r"a class name must not be|cannot be the name of a class"):
            taught.learn((files.paths[:1], [name]))
        with pytest.raises(InputError, match=r"a class name must not be|cannot be the name of a class"):
            taught.relabel(files.paths[:1], name)


def test_drop(taught: ImageModel, backbone: Backbone, album: Path) -> None:
    """The other classes keep their weights: the images still count as examples of what those are not."""
    before, count = weights(taught), len(taught.seen)
    taught.drop("char 37")
    assert "char 37" not in {label for answer in taught.predict(album / "test", top_k=9) for label, _ in answer.top_k}
    for label, expected in weights(taught).items():
        np.testing.assert_allclose(expected, before[label], rtol=1e-8, atol=1e-8)
    assert taught.counts == dict.fromkeys(taught.classes, 15)
    assert len(taught.seen) == count - 15
    assert np.isfinite([answer.novelty for answer in taught.predict(album / "test")]).all()
    for label in taught.classes[1:]:
        taught.drop(label)
    with pytest.raises(InputError, match="is the only class and cannot be dropped"):
        taught.drop(taught.classes[0])


def test_relabel(backbone: Backbone, album: Path) -> None:
    files = read_files(album / "first")
    labels = list(files.labels)
    wrong, right = new(backbone), new(backbone)
    right.learn((files.paths, labels))
    mistaken = [0, 1, 2, 20]  # two to a class that is not theirs, one to a class of its own
    taught = [*labels]
    taught[0] = taught[1] = "char 111"
    taught[2] = taught[20] = "mistake"
    wrong.learn((files.paths, taught))
    assert wrong.relabel((files.paths, labels)) == 4
    same_main_stream(wrong, right)
    assert wrong.counts == {label: right.counts[label] for label in wrong.classes}
    assert wrong.classifier.compensation == 0.0
    np.testing.assert_allclose(wrong.statistics.products, right.statistics.products, rtol=1e-9, atol=1e-9)
    assert wrong.relabel((files.paths, labels)) == 0
    assert wrong.relabel([files.paths[row] for row in mistaken], "other") == 4
    assert wrong.counts["other"] == 4
    with pytest.raises(InputError, match="never learned"):
        wrong.relabel(album / "second", "other")


def test_the_folder_of_a_renamed_class_does_not_bring_its_old_name_back(taught: ImageModel, album: Path) -> None:
    taught.rename("char 0", "alpha")
    with pytest.raises(InputError, match=r"no class 'char 0'; it knows these images as 'alpha'.*rename the folder"):
        taught.relabel(album / "first")
    assert taught.classes == ("alpha", "char 111", "char 37", "char 74")
    assert len(taught.learn(album / "first").moved) == 15  # nor does a lesson
    assert taught.relabel((album / "first" / "char 0").iterdir(), "char 0") == 15  # unless it is named


def test_an_error_late_in_a_lesson_changes_nothing(
    taught: ImageModel, album: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After the classifier has learned: its statistics must not be left behind."""
    taught.save(tmp_path / "before.dsal")
    counts, answers = taught.counts, taught.predict(album / "test")
    with monkeypatch.context() as patch:
        patch.setattr(ClassStatistics, "loo_distances", lambda *_: (_ for _ in ()).throw(MemoryError))
        with pytest.raises(MemoryError):
            taught.learn(album / "second")
    assert taught.counts == counts
    assert taught.predict(album / "test") == answers
    taught.save(tmp_path / "after.dsal")
    assert (tmp_path / "before.dsal").read_bytes() == (tmp_path / "after.dsal").read_bytes()


def test_a_late_error_while_forgetting_keeps_the_history(
    taught: ImageModel, album: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    taught.learn(album / "second")
    taught.notes["a"] = 1
    before = taught.predict(album / "test")
    with monkeypatch.context() as patch:
        patch.setattr(ClassStatistics, "sample", lambda *_: (_ for _ in ()).throw(MemoryError))
        with pytest.raises(MemoryError):
            taught.forget(album / "second")
    assert taught.predict(album / "test") == before
    assert taught.notes == {"a": 1}
    assert taught.undo().startswith("learned 45")
