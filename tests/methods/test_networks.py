"""Methods that train a network: the contract, and what each must be when its own term is gone."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
import torch

from dsal.backbones import Backbone
from dsal.data import FileData, ImageData
from dsal.errors import InputError
from dsal.methods import METHODS, Phase
from dsal.methods.checks import CHECKS, checks, learn
from dsal.methods.network.kit.network_method import NetworkMethod
from dsal.training import Fit

NAMES = [name for name in METHODS.names() if METHODS.get(name).inputs == "images"]
SMALL = {
    "architecture": "tiny",
    "epochs": 2,
    "base_epochs": 2,
    "batch_size": 32,
    "lr": 0.05,
    "mirror": False,
    "device": "cpu",
    "precision": "float32",
}
FEWER = {  # what else makes a method fast
    "podnet": {"tune_epochs": 2, "proxies": 2},
    "podnet-aanets": {"tune_epochs": 2, "proxies": 2},
    "foster": {"compress_epochs": 2, "answer": "boosted"},
    "pass": {"lr": 0.003},
    "il2a": {"lr": 0.003},
    "ssre": {"lr": 0.003, "base_lr": 0.003},
    "eeil": {"tune_epochs": 2},
    "bic": {"bias_epochs": 2},
    "rmm": {"tune_epochs": 2, "proxies": 2, "phase_images": 30},
    "icarl-rmm": {"phase_images": 30, "class_shares": (0.2,), "actions": "learned", "episodes": 2},
    "online-lucir": {"draws": 2, "draw_epochs": 1},
}
OFTEN = ("classes_grow_with_every_phase", "a_state_of_any_step_continues_bit_for_bit")
LEARNED = "one_phase_is_learned"


def make(name: str, **more: object) -> NetworkMethod:
    method = METHODS.get(name)(**{**SMALL, **more})
    assert isinstance(method, NetworkMethod)
    return method


def phases(train: ImageData, *groups: range) -> list[Phase]:
    parts = [torch.nonzero(torch.isin(train.labels, torch.tensor(group))).flatten() for group in groups]
    return [Phase(k, group, train.take(rows)) for k, (group, rows) in enumerate(zip(groups, parts, strict=True))]


def learned(method: NetworkMethod, parts: list[Phase]) -> NetworkMethod:
    for phase in parts:
        learn(method, phase)
    return method


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    "check", [name if name in OFTEN else pytest.param(name, marks=pytest.mark.slow) for name in CHECKS]
)
def test_methods_pass_the_checks(name: str, check: str, train: ImageData, test: ImageData) -> None:
    options = {**SMALL, "base_epochs": 80 if check == LEARNED else 2, **FEWER.get(name, {})}
    every = {each.name: each for each in checks(METHODS.get(name), options=options, train=train, test=test)}
    every[check]()


@pytest.mark.parametrize(
    ("name", "off"),
    [
        ("lwf", {"strength": 0.0}),
        ("ewc", {"strength": 0.0}),
        ("ewc", {"clip": 0.0}),  # no weight is of any importance
    ],
)
def test_without_its_term_it_is_fine_tuning(
    name: str, off: dict[str, float], three: list[Phase], test: ImageData
) -> None:
    plain, without, whole = (learned(made, three) for made in (make("finetune"), make(name, **off), make(name)))
    expected = plain.scores(test)
    np.testing.assert_array_equal(without.scores(test), expected)
    assert (whole.scores(test) != expected).any()


def test_lfl_without_its_term_is_fine_tuning_with_frozen_rows(three: list[Phase], test: ImageData) -> None:
    """Weight decay, which would shrink the rows that fine-tuning leaves free, is off."""
    made = (make(name, weight_decay=0.0, **off) for name, off in (("finetune", {}), ("lfl", {"strength": 0.0})))
    plain, without = (learned(method, three).scores(test) for method in made)
    np.testing.assert_array_equal(without, plain)


def test_old_rows_of_the_head_are_frozen_where_they_shall_be(three: list[Phase]) -> None:
    for name, more in (("lucir", {}), ("lfl", {}), ("podnet", {"tune_epochs": 0})):
        method = learned(make(name, **more), three[:2])
        before = [weight.detach().clone() for weight in method.network.head.weights]
        body = method.network.body.state_dict()["conv1.weight"].clone()
        learn(method, three[2])
        for old, now in zip(before, method.network.head.weights, strict=False):
            assert torch.equal(old, now)
        assert not torch.equal(body, method.network.body.state_dict()["conv1.weight"])


def test_joint_training_sees_everything_and_says_so(three: list[Phase]) -> None:
    method = learned(make("joint-network"), three[:2])
    assert len(method.exemplars) == sum(len(phase.samples) for phase in three[:2])
    assert not method.exemplar_free
    assert method.state().nbytes > method.exemplars.nbytes == 6 * 15 * 28 * 28
    seen: list[int] = []
    original = Fit.steps

    def steps(fit: Fit) -> Iterator[object]:
        seen.append(len(fit.samples))
        yield from original(fit)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Fit, "steps", steps)
        learn(method, three[2])
    assert seen == [8 * 15]


@pytest.mark.parametrize("name", ["icarl", "lucir", "podnet", "foster"])
def test_exemplars_are_real_images_within_the_budget(name: str, three: list[Phase], train: ImageData) -> None:
    image = 28 * 28
    for per_class, budget, expected in ((3, None, [3, 3, 3]), (5, 12 * image, [3, 2, 1]), (0, None, [0, 0, 0])):
        method = make(name, exemplars_per_class=per_class, exemplar_bytes=budget, epochs=1, **FEWER.get(name, {}))
        if per_class == 0 and name == "icarl":
            method.classifier = "cnn"  # type: ignore[attr-defined]
        for phase, each in zip(three, expected, strict=True):
            learn(method, phase)
            kept = method.exemplars.data
            if not each:
                assert kept is None
                continue
            assert kept is not None
            assert torch.bincount(kept.labels).tolist() == [each] * method.classes_seen
            assert method.exemplars.nbytes == len(kept) * image <= (budget or np.inf)
        if kept is not None:
            for picture, label in zip(kept.images, kept.labels, strict=True):
                assert (train.images[train.labels == label] == picture).flatten(1).all(1).any()


def test_the_nearest_mean_of_exemplars(three: list[Phase], test: ImageData) -> None:
    method = learned(make("icarl", exemplars_per_class=4), three)
    kept = method.exemplars.data
    assert kept is not None

    def directions(data: ImageData) -> np.ndarray:
        rows = method.features_of(data).double().numpy()
        return rows / np.linalg.norm(rows, axis=1, keepdims=True)

    rows = (directions(kept) + directions(kept.relabel(kept.labels).flipped())) / 2
    means = np.array([rows[kept.labels.numpy() == label].mean(0) for label in range(8)])
    means /= np.linalg.norm(means, axis=1, keepdims=True)
    expected = -np.linalg.norm(directions(test)[:, None] - means, axis=2)
    np.testing.assert_allclose(method.scores(test), expected, atol=1e-5)
    assert (method.scores(test) != learned(make("icarl", classifier="cnn"), three).scores(test)).any()


def test_a_network_that_is_given_is_not_trained_in_phase_0(
    backbone: Backbone, three: list[Phase], test: ImageData
) -> None:
    for name in ("finetune", "lwf", "ewc"):
        method = make(name)
        method.start(backbone)
        assert list(method.learn(three[0])) == []
        torch.testing.assert_close(torch.from_numpy(method.scores(test)), backbone.classify(test.images))
    with pytest.raises(InputError, match="before phase 0"):
        method.start(backbone)


def test_a_head_that_does_not_fit_is_adapted_in_the_epochs_for_it(
    backbone: Backbone, three: list[Phase], test: ImageData
) -> None:
    method = make("lucir", adapt_epochs=3)
    method.start(backbone)
    again = type(method).from_state(method.state())  # saved before phase 0
    assert [progress.done for progress in method.learn(three[0])] == [1, 2, 3]
    learn(again, three[0])
    np.testing.assert_array_equal(again.scores(test), method.scores(test))


def test_files_are_learned_as_images_in_memory_are(train: ImageData, tmp_path: Path) -> None:
    from PIL import Image

    some = train.take(torch.nonzero(train.labels < 4).flatten())
    paths = []
    for number, picture in enumerate(some.images):
        paths.append(tmp_path / f"{number}.png")
        Image.fromarray(picture[0].numpy()).save(paths[-1])
    files = FileData(tuple(paths), some.labels).at(28, 1)
    held = files.in_memory()
    lazy, direct = (
        learned(make("icarl", exemplars_per_class=2), phases(part, range(2), range(2, 4)))  # type: ignore[arg-type]
        for part in (files, held)
    )
    np.testing.assert_array_equal(lazy.scores(held), direct.scores(held))


def test_a_stopped_phase_continues_with_that_phase(three: list[Phase]) -> None:
    method = learned(make("lwf"), three[:1])
    list(islice(method.learn(three[1]), 1))
    again = type(method).from_state(method.state())
    assert again.classes_seen == 4
    with pytest.raises(InputError, match="within phase 1"):
        learn(again, Phase(2, range(4, 6), three[1].samples))


def test_phase_0_may_have_a_schedule_of_its_own(three: list[Phase], monkeypatch: pytest.MonkeyPatch) -> None:
    recipes = []
    original = Fit.steps

    def steps(fit: Fit) -> Iterator[object]:
        recipes.append((fit.recipe.lr, fit.recipe.milestones, fit.recipe.weight_decay))
        yield from original(fit)

    monkeypatch.setattr(Fit, "steps", steps)
    own = {"base_lr": 0.02, "base_milestones": (0.3,), "base_weight_decay": 0.001}
    learned(make("lwf", milestones=(0.5,), weight_decay=0.002, **own), three[:2])
    learned(make("lwf", milestones=(0.5,), weight_decay=0.002), three[:1])
    assert recipes == [(0.02, (0.3,), 0.001), (0.05, (0.5,), 0.002), (0.05, (0.5,), 0.002)]
