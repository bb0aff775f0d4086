"""Suggestions: what the rule picks, what it leaves out, and that it teaches more than chance."""

import copy
from pathlib import Path

import numpy as np
import pytest

from dsal import DSALClassifier, InputError
from dsal.backbones import Backbone
from dsal.data.images.labelled_files import read_files
from dsal.image_model import ImageModel
from dsal.image_model.image_predictor import most_useful


@pytest.fixture
def taught(backbone: Backbone, album: Path) -> ImageModel:
    model = ImageModel(backbone, DSALClassifier(expansion_size=256))
    model.learn(album / "first")
    return model


def test_the_middle_of_every_group_the_most_doubtful_first() -> None:
    """Groups far apart; the last is not worth a question, for the model is sure of it."""
    random = np.random.default_rng(0)
    centres = 10 * np.eye(4, 6)
    x = (centres[:, None] + random.standard_normal((4, 9, 6))).reshape(36, 6)
    x[[4, 13, 22, 31]] = 3 * centres  # the middle of its group, whatever its length
    doubt = np.repeat([0.1, 0.9, 0.5, 0.0], 9)
    likely = np.stack([1 - doubt / 2, doubt / 2], axis=1)
    assert most_useful(x.astype(np.float32), likely, 3) == [13, 22, 4]
    assert all(9 <= row < 27 for row in most_useful(x.astype(np.float32), likely, 2))
    assert sorted(most_useful(x.astype(np.float32), likely, 99)) == list(range(36))


def test_fewer_suggestions_are_the_first_of_more() -> None:
    random = np.random.default_rng(1)
    x, likely = random.standard_normal((300, 8)).astype(np.float32), random.dirichlet(np.ones(4), 300)
    most = most_useful(x, likely, 300)
    assert sorted(most) == list(range(300))
    for count in (1, 2, 5, 19, 20, 21, 40, 77):
        assert most_useful(x, likely, count) == most[:count]


def test_equal_rows_and_one_class_are_no_trouble() -> None:
    x = np.zeros((3, 2), np.float32)
    assert sorted(most_useful(x, np.ones((3, 1)), 5)) == [0, 1, 2]
    assert len(set(most_useful(x, np.ones((3, 1)), 2))) == 2


def test_images_learned_before_and_copies_are_left_out(taught: ImageModel, album: Path) -> None:
    first, second = sorted((album / "second").rglob("*.png")), sorted((album / "first").rglob("*.png"))
    answers = taught.suggest([*first, *first, *second], count=100)
    assert sorted(answer.path for answer in answers if answer.path) == first
    with pytest.raises(InputError, match="learned before"):
        taught.suggest(album / "first")
    with pytest.raises(InputError, match="at least 1"):
        taught.suggest(album / "second", count=0)


def test_suggested_images_teach_more_than_others(backbone: Backbone, album: Path) -> None:
    """Two images a class are known; of what is left, twelve suggested ones against twelve at random.

    Means over seven pairs of known images: twenty test images tell little of one pair.
    """
    files, test = read_files(album / "first"), album / "test"
    labels = dict(zip(files.paths, files.labels, strict=True))
    suggested, others = [], []
    for start in range(0, 14, 2):
        known = [path for number, path in enumerate(files.paths) if start <= number % 15 < start + 2]
        pool = [path for path in files.paths if path not in known]
        model = ImageModel(backbone, DSALClassifier(expansion_size=256, gamma=100.0))
        model.learn((known, [labels[path] for path in known]))
        choices = [[answer.path for answer in model.suggest(pool, 12) if answer.path]]
        choices += [[pool[row] for row in np.random.default_rng(seed).permutation(len(pool))[:12]] for seed in range(3)]
        accuracies = []
        for chosen in choices:
            taught = copy.deepcopy(model)
            taught.learn((chosen, [labels[path] for path in chosen]))
            accuracies.append(taught.evaluate(test).accuracy)
        suggested.append(accuracies[0])
        others += accuracies[1:]
    assert np.mean(suggested) > np.mean(others)
