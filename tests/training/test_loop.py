"""Base training on real images: it learns, it leaves alone what it must not see, it resumes to the same weights."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from dsal.backbones import load_backbone
from dsal.data import ImageData, load_dataset
from dsal.errors import FileFormatError, InputError
from dsal.files.tensors import load_tensors
from dsal.training import RECIPES, BaseTraining, Recipe, load_checkpoint, save_checkpoint
from dsal.training.fit import Batch

# Everything a recipe can ask for, at a size that trains in seconds.
RICH = Recipe(
    epochs=4,
    batch_size=64,
    optimiser="muon",
    warmup=0.1,
    label_smoothing=0.1,
    trivial=0.5,
    cutout=6,
    mixup=0.2,
    rotation_share=0.25,
    average=0.9,
    sizes=((0.5, 12), (1.0, 16)),
)
CLASSES = (7, 3, 11, 2, 5, 19, 23, 29, 31, 37)


@pytest.fixture(scope="module")
def data() -> ImageData:
    return load_dataset("omniglot").train


def training(data: ImageData, recipe: Recipe = RICH, **options: object) -> BaseTraining:
    asked = {"classes": CLASSES, "held_out": 0.2, "device": torch.device("cpu"), **options}
    return BaseTraining(
        data, dataset="omniglot", class_order="natural", architecture="resnet32", recipe=recipe, **asked
    )  # type: ignore[arg-type]


def weights(done: BaseTraining) -> dict[str, torch.Tensor]:
    return done.backbone({}).state_dict()


def same(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


@pytest.fixture(scope="module")
def finished(data: ImageData) -> BaseTraining:
    made = training(data)
    list(made.epochs())
    return made


def test_only_base_classes_are_used_and_a_share_of_each_is_held_out(data: ImageData) -> None:
    made = training(data)
    assert torch.bincount(made.train.labels).tolist() == [12] * 10
    assert torch.bincount(made.held_out.labels).tolist() == [3] * 10
    for label, images in zip(made.train.labels, made.train.images, strict=True):
        mine = data.images[data.labels == CLASSES[int(label)]]
        assert (mine == images).flatten(1).all(1).any()
    kept = {image.numpy().tobytes() for image in made.train.images}
    assert not kept & {image.numpy().tobytes() for image in made.held_out.images}


def test_the_same_seed_gives_the_same_weights_and_another_gives_others(data: ImageData, finished: BaseTraining) -> None:
    again, other = training(data), training(data, seed=1)
    assert len(list(again.epochs())) == RICH.epochs
    list(other.epochs())
    assert same(weights(again), weights(finished))
    assert not same(weights(other), weights(finished))


@pytest.mark.parametrize("stop", [1, 3])
def test_a_checkpoint_continues_to_the_same_weights(
    data: ImageData, finished: BaseTraining, stop: int, tmp_path: Path
) -> None:
    path = tmp_path / "checkpoint"
    first = training(data)
    for result in first.epochs():
        if result.epoch == stop:
            save_checkpoint(path, first)
            break
    second = training(data)
    load_checkpoint(path, second)
    assert [result.epoch for result in second.epochs()] == list(range(stop + 1, RICH.epochs + 1))
    assert same(weights(second), weights(finished))


def test_a_checkpoint_holds_what_adam_remembers(data: ImageData, tmp_path: Path) -> None:
    recipe = Recipe(epochs=2, batch_size=60, optimiser="adam", lr=1e-3)
    unbroken, first, second = (training(data, recipe) for _ in range(3))
    list(unbroken.epochs())
    next(iter(first.epochs()))
    save_checkpoint(tmp_path / "checkpoint", first)
    load_checkpoint(tmp_path / "checkpoint", second)
    assert len(list(second.epochs())) == 1
    assert same(weights(second), weights(unbroken))


def test_a_checkpoint_of_another_training_is_refused(data: ImageData, tmp_path: Path) -> None:
    path = tmp_path / "checkpoint"
    save_checkpoint(path, training(data))
    for other, what in (
        (training(data, replace(RICH, lr=0.2)), "recipe"),
        (training(data, seed=1), "seed"),
        (training(data, classes=CLASSES[::-1]), "card"),
        (training(data, shift=1), "card"),
        (training(ImageData(data.images.flip(3), data.labels)), "data"),
    ):
        with pytest.raises(InputError, match=f"another training.*{what}"):
            load_checkpoint(path, other)
    path.write_bytes(path.read_bytes()[:5000])
    with pytest.raises(FileFormatError):
        load_checkpoint(path, training(data))


def test_the_number_of_threads_does_not_change_what_a_checkpoint_belongs_to() -> None:
    noise = torch.randint(256, (400, 1, 28, 28), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    many = ImageData(noise, torch.tensor(CLASSES).repeat(40))
    threads, cards = torch.get_num_threads(), []
    for count in (1, 2):
        torch.set_num_threads(count)
        try:
            cards.append(training(many).model.card)
        finally:
            torch.set_num_threads(threads)
    assert cards[0] == cards[1]


def test_it_learns(data: ImageData) -> None:
    made = training(data, Recipe(epochs=12, batch_size=30, optimiser="muon", lr=0.02, warmup=0.1, sizes=((1.0, 14),)))
    results = list(made.epochs())
    assert results[-1].loss < 0.6 * results[0].loss
    assert results[-1].accuracy > 60  # 10 by chance


def test_the_backbone_carries_its_statistics_card_and_history(finished: BaseTraining) -> None:
    backbone = finished.backbone({"note": 1})
    features = backbone.extract(finished.train.images, "blocks")
    torch.testing.assert_close(features.mean(0), torch.zeros(1152), atol=1e-3, rtol=0)
    alive = features.std(0) > 0
    assert alive.float().mean() > 0.99
    torch.testing.assert_close(features.std(0)[alive], torch.ones(int(alive.sum())), atol=1e-3, rtol=0)
    card = backbone.card
    assert (card.seen_classes, card.in_channels, card.size) == (CLASSES, 1, 28)
    assert card.training["note"] == 1
    assert [entry["epoch"] for entry in card.training["history"]] == [1, 2, 3, 4]
    # The head of rotations is gone: what is left is the head of upright images.
    scores = backbone.classify(finished.held_out.images)
    assert scores.shape == (30, 10)
    right = 100 * float((scores.argmax(1) == finished.held_out.labels).float().mean())
    assert right == pytest.approx(finished.accuracy(finished.held_out))


def test_too_few_images_and_a_bad_optimiser_are_refused(data: ImageData) -> None:
    with pytest.raises(InputError, match="cannot fill a batch of 500"):
        training(data, replace(RICH, batch_size=500))
    with pytest.raises(InputError, match="did you mean 'muon'"):
        training(data, replace(RICH, optimiser="moun"))


def test_recipes_end_where_they_say() -> None:
    for name in RECIPES.names():
        recipe = RECIPES.get(name)
        assert 0 <= recipe.lr_factor(1 - 1e-9) <= 0.011
        assert max(recipe.lr_factor(step / 1000) for step in range(1000)) == pytest.approx(1, abs=0.01)
        assert recipe.size(1 - 1e-9) in (None, 32)


def test_kill_then_resume_equals_never_interrupted(tmp_path: Path) -> None:
    """The real command, killed with SIGKILL in the midst of an epoch."""

    def command(out: Path, *more: str) -> list[str]:
        options = ["--dataset", "omniglot", "--recipe", "paper", "--epochs", "3", "--base-classes", "10"]
        return [sys.executable, "-m", "dsal", "pretrain", *options, "--out", str(out), *more]

    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    whole, cut = tmp_path / "whole.safetensors", tmp_path / "cut.safetensors"
    subprocess.run(command(whole), env=environment, check=True, capture_output=True)
    process = subprocess.Popen(command(cut), env=environment, stderr=subprocess.DEVNULL)
    checkpoint = tmp_path / "cut.safetensors.checkpoint"
    while not checkpoint.exists():
        time.sleep(0.01)
        assert process.poll() is None
    time.sleep(0.2)
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    assert not cut.exists()
    refused = subprocess.run(command(cut), env=environment, capture_output=True, text=True, check=False)
    assert refused.returncode == 2
    assert "--resume" in refused.stderr
    subprocess.run(command(cut, "--resume"), env=environment, check=True, capture_output=True)
    tensors, other = load_tensors(whole)[0], load_tensors(cut)[0]
    assert all((tensors[name] == other[name]).all() for name in tensors)
    assert load_backbone(cut).fingerprint() == load_backbone(whole).fingerprint()
    assert not checkpoint.exists()


@pytest.mark.parametrize("temperature", [1.0, 4.0])
def test_distillation_is_cross_entropy_to_the_teacher(
    data: ImageData, finished: BaseTraining, temperature: float
) -> None:
    teacher = finished.backbone({})
    recipe = Recipe(epochs=1, batch_size=64, distillation=1.0, temperature=temperature)
    again = training(data, recipe, teachers=[teacher], start=teacher)
    images, labels = again.train.images[:32], again.train.labels[:32]
    batch = Batch(images, labels, slice(None), 0.0, torch.Generator())
    loss, _ = again.objective(lambda x: again.model.head(again.model.network.eval()(x)), batch)
    p = (teacher.head(teacher.network(teacher.normalise(images))) / temperature).softmax(1)
    entropy = -(p * p.log()).sum(1).mean().item()  # of a network by itself
    assert loss.item() == pytest.approx(temperature**2 * entropy, rel=1e-5)
    gradients = torch.autograd.grad(loss, list(again.model.head.parameters()))
    assert all(gradient.abs().max() < 1e-6 for gradient in gradients)
    with pytest.raises(InputError, match="distillation needs a teacher"):
        training(data, Recipe(epochs=1, distillation=0.5))
    with pytest.raises(InputError, match="temperature must be positive"):
        Recipe(epochs=1, temperature=0.0)


def test_several_teachers_teach_their_mean(data: ImageData, finished: BaseTraining) -> None:
    known = finished.backbone({})
    other = training(data, Recipe(epochs=1, batch_size=64)).backbone({})
    recipe = Recipe(epochs=1, batch_size=64, distillation=1.0, temperature=2.0)
    taught = training(data, recipe, teachers=[known, other])
    images, labels = taught.train.images[:32], taught.train.labels[:32]
    scores = torch.randn(32, other.head.out_features, generator=torch.Generator().manual_seed(0))
    loss, _ = taught.objective(lambda _: scores, Batch(images, labels, slice(None), 0.0, torch.Generator()))
    p, q = ((t.head(t.network(t.normalise(images))) / 2).softmax(1) for t in (known, other))
    expected = 4 * -((p + q) / 2 * (scores / 2).log_softmax(1)).sum(1).mean()
    assert loss.item() == pytest.approx(expected.item(), rel=1e-5)


def test_repeating_views_ask_the_teacher_once(data: ImageData, finished: BaseTraining, tmp_path: Path) -> None:
    recipe = Recipe(epochs=4, batch_size=64, distillation=0.5, trivial=0.5, mixup=0.5, views=2)
    asked = []

    def taught(epochs: int = 4, path: Path | None = None) -> BaseTraining:
        teacher = finished.backbone({})
        teacher.network.register_forward_hook(lambda module, args, result: asked.append(args[0].clone()))
        student = training(data, recipe, teachers=[teacher])
        if path is not None:
            load_checkpoint(path, student)
        for result in student.epochs():
            if result.epoch == epochs:
                break
        return student

    whole = taught()
    views = 2 * whole.fit.steps_per_epoch
    assert len(asked) == views
    assert not torch.equal(asked[0], asked[views // 2])  # the second view is another one
    forgetful = training(data, recipe, teachers=[finished.backbone({})])
    forgetful.objective.teachers._kept = type("Forgetful", (dict,), {"__setitem__": lambda *_: None})()
    list(forgetful.epochs())  # asks in every epoch
    assert forgetful.model.fingerprint() == whole.model.fingerprint()
    save_checkpoint(tmp_path / "checkpoint", taught(3))
    assert taught(path=tmp_path / "checkpoint").model.fingerprint() == whole.model.fingerprint()
    with pytest.raises(InputError, match="either views or sizes"):
        Recipe(epochs=1, views=2, sizes=((0.5, 16),))
    with pytest.raises(InputError, match="must not be negative"):
        Recipe(epochs=1, views=-1)
