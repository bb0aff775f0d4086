"""What merging adds up besides the sums: the record of images, the counts of answers, the novelty reference."""

from pathlib import Path

import numpy as np
import pytest

from dsal.backbones import Backbone
from dsal.classifier.calibration import Calibration
from dsal.data.images.labelled_files import LabelledFiles, read_files
from dsal.errors import InputError
from dsal.image_model import ImageModel
from dsal.image_model.outcomes import added, counted, renamed, restricted
from dsal.image_model.seen import Seen

A, B, C = (name * 16 for name in (b"a", b"b", b"c"))


def test_a_record_counts_each_time_an_image_was_learned() -> None:
    seen = Seen().plus([A, B, A, None], ["cat", "dog", "fox", "cat"])
    assert (len(seen), A in seen, C in seen) == (3, True, False)
    assert (seen.labels(A), seen.labels(B), seen.labels(C), seen.labels(None)) == (("cat", "fox"), ("dog",), (), ())
    left = seen.minus([A, A, None], ["cat", "cow", "cat"])
    assert (left.labels(A), len(left), len(seen)) == (("fox",), 2, 3)  # once, and only under its label
    twice = Seen().plus([A, A], ["cat", "cat"]).minus([A], ["cat"])
    assert twice.labels(A) == ("cat",)
    assert A not in twice.minus([A], ["cat"])


def test_records_add_up() -> None:
    ours, theirs = Seen().plus([A, B], ["cat", "dog"]), Seen().plus([B, C], ["cow", "dog"])
    both = ours.merged(theirs)
    assert [both.labels(key) for key in (A, B, C)] == [("cat",), ("dog", "cow"), ("dog",)]
    assert (ours.shared(theirs), theirs.shared(ours), ours.shared(Seen())) == (1, 1, 0)
    assert (len(ours), len(theirs)) == (2, 2)  # unchanged


def test_a_class_is_renamed_or_removed_in_the_record() -> None:
    seen = Seen().plus([A, A, B], ["cat", "dog", "cat"])
    assert [seen.renamed("cat", "lynx").labels(key) for key in (A, B)] == [("lynx", "dog"), ("lynx",)]
    without = seen.renamed("cat", None)
    assert (without.labels(A), B in without) == (("dog",), False)


def test_a_record_is_restored_from_its_arrays() -> None:
    seen = Seen().plus([B, A, A], ["cat", "dog", "cat"])
    arrays = seen.arrays(["dog", "cat"])
    np.testing.assert_array_equal(arrays["columns"], [0, 1, 1])
    assert (arrays["keys"].shape, arrays["columns"].dtype) == ((3, 16), np.int32)
    again = Seen.from_arrays(arrays, ["dog", "cat"])
    assert [again.labels(key) for key in (A, B)] == [("dog", "cat"), ("cat",)]
    assert Seen().arrays([])["keys"].shape == (0, 16)


def test_a_lesson_is_sorted_into_what_to_learn_and_what_to_skip() -> None:
    seen, keys = Seen().plus([A], ["cat"]), [A, A, B, B, B, None, None]
    labels = ["cat", "dog", "cat", "cat", "dog", "cat", "cat"]
    plan = seen.plan(keys, labels)
    assert plan == ([2, 4, 5, 6], 1, 1, [(1, "cat")])
    assert seen.plan(keys, labels, again=True) == (list(range(7)), 0, 0, [])


def test_counts_of_answers() -> None:
    columns, answers = np.array([0, 0, 1, 0]), np.array([0, 1, 1, 0])
    found = counted(("a", "b"), columns, answers)
    assert found == {"a": {"a": 2, "b": 1}, "b": {"b": 1}}
    assert counted(("a",), columns[:1], answers[:1]) == {}
    both = added(found, {"b": {"b": 3, "a": 1}, "c": {"c": 5}})
    assert both == {"a": {"a": 2, "b": 1}, "b": {"b": 4, "a": 1}, "c": {"c": 5}}
    assert found == {"a": {"a": 2, "b": 1}, "b": {"b": 1}}  # unchanged
    assert restricted(both, ("a", "c")) == {"a": {"a": 2}, "c": {"c": 5}}
    assert renamed(found, "b", "z") == {"a": {"a": 2, "z": 1}, "z": {"z": 1}}


def part(files: LabelledFiles, rows: list[int]) -> tuple[list[Path], list[str]]:
    return [files.paths[row] for row in rows], [files.labels[row] for row in rows]


@pytest.fixture
def models(backbone: Backbone, album: Path) -> tuple[ImageModel, ImageModel]:
    """Two models that share a class but no image; the second learned its classes in another order."""
    first, second = read_files(album / "first"), read_files(album / "second")
    ours, theirs = (ImageModel(backbone, expansion_size=128) for _ in range(2))
    shared = [row for row, label in enumerate(first.labels) if label == first.labels[0]]
    half = shared[: len(shared) // 2]
    ours.learn(part(first, [row for row in range(len(first.labels)) if row not in half]))
    theirs.learn(second)
    theirs.learn(part(first, half))
    return ours, theirs


def test_everything_of_both_models_is_in_the_merged_one(models: tuple[ImageModel, ImageModel]) -> None:
    ours, theirs = models
    counts, left_out, keys = ours.counts, ours.left_out, len(ours.seen)
    before = ours.version_id
    assert ours.merge(theirs) is ours
    assert ours.counts == {label: counts.get(label, 0) + theirs.counts.get(label, 0) for label in ours.classes}
    assert set(ours.classes) == set(counts) | set(theirs.classes)
    assert ours.left_out == added(left_out, theirs.left_out)
    assert len(ours.seen) == keys + len(theirs.seen) == sum(ours.counts.values())
    assert ours.history[0].change == f"merged {len(theirs.classes)} classes of another model"
    assert ours.version_id != before
    assert ours.undo()
    assert (ours.counts, ours.left_out, ours.version_id) == (counts, left_out, before)


def test_what_the_merged_model_expects_is_estimated_from_its_sums(models: tuple[ImageModel, ImageModel]) -> None:
    ours, theirs = models
    rows = ours.reference.counts.sum() + theirs.reference.counts.sum()
    alone = ours.reference
    ours.merge(theirs)
    assert ours.reference.counts.sum() == pytest.approx(rows)
    expected = ours._learned._expected()
    assert expected is not None
    renewed = alone.merged(theirs.reference).renewed(expected, ours.statistics.counts)
    np.testing.assert_array_equal(ours.reference.counts, renewed.counts)
    x, columns = ours.statistics.sample(20)  # in place of images
    calibration = Calibration().plus(ours.classifier.logits(x), columns, np.ones(len(x)), float(len(ours.seen)))
    np.testing.assert_allclose(ours.classifier._calibration.losses, calibration.losses)


def test_shared_images_count_twice_only_if_asked(models: tuple[ImageModel, ImageModel], album: Path) -> None:
    ours, theirs = models
    first = read_files(album / "first")
    theirs.learn(part(first, [len(first.labels) - 1]))
    with pytest.raises(InputError, match="the same images, 1 in all"):
        ours.merge(theirs)
    label = first.labels[-1]
    total = ours.counts[label] + theirs.counts[label]
    assert ours.merge(theirs, again=True).counts[label] == total


def test_an_untaught_model_neither_merges_nor_is_merged(
    models: tuple[ImageModel, ImageModel], backbone: Backbone
) -> None:
    empty = ImageModel(backbone, expansion_size=128)
    for one, other in ((models[0], empty), (empty, models[0])):
        with pytest.raises(InputError, match="learned nothing yet"):
            one.merge(other)
