"""Auxiliary heads: labels of class and transform, the loss by hand, teachers for every head, state and files."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional

from dsal.backbones import load_backbone, save_backbone
from dsal.data import ImageData
from dsal.errors import FileFormatError, InputError
from dsal.files.tensors import load_tensors, save_tensors
from dsal.training import Recipe, load_checkpoint, save_checkpoint
from dsal.training.augment import ROTATIONS, SWAPS, joint_labels, transformed
from dsal.training.objective import all_outputs, head_of

from .conftest import TURNED, answered, first_batch, taught, training


def entropy(scores: Tensor, label: int, smoothing: float = 0.0) -> float:
    """Cross-entropy of the scores of one image to its label."""
    scores = scores.detach()
    logs = [float(s) - math.log(sum(math.exp(float(t)) for t in scores)) for s in scores]
    return -(1 - smoothing) * logs[label] - smoothing * sum(logs) / len(logs)


def test_a_transformed_image_has_a_label_of_its_own() -> None:
    images = torch.randint(256, (40, 3, 6, 6), dtype=torch.uint8)
    out, which = transformed(images, (*ROTATIONS, *SWAPS), 0.75, torch.Generator().manual_seed(0))
    assert which[30:].tolist() == [0] * 10
    assert set(which[:30].tolist()) == {1, 2, 3, 4, 5}
    for before, after, number in zip(images.numpy(), out.numpy(), which.tolist(), strict=True):
        if number < 4:
            assert np.array_equal(after, np.rot90(before, number, axes=(1, 2)))
        else:
            assert np.array_equal(after, before[[1, 2, 0] if number == 4 else [2, 0, 1]])
    labels = joint_labels(torch.tensor([0, 0, 1, 2]), torch.tensor([0, 5, 0, 3]), 5)
    assert labels.tolist() == [0, 5, 6, 15]


@pytest.mark.parametrize("kind", ["convolution", "pooled"])
def test_the_loss_is_what_is_written(noise: ImageData, kind: str) -> None:
    recipe = replace(TURNED, auxiliary=kind, auxiliary_weight=0.7, label_smoothing=0.1)
    made = training(noise, recipe)
    made.model.eval()
    batch = first_batch(made)
    _, which, out = answered(made, batch)
    assert [head.shape for head in out.heads] == [(12, 12), (12, 12)]
    upright = [n for n in range(12) if which[n] == 0]
    head = sum(entropy(out.scores[n], int(batch.labels[n]), 0.1) for n in upright) / len(upright)
    joint = [4 * int(batch.labels[n]) + int(which[n]) for n in range(12)]
    heads = [sum(entropy(scores[n], joint[n], 0.1) for n in range(12)) / 12 for scores in out.heads]
    loss, hits = made.objective(made.fit.forward, batch)
    assert len(upright) == 6
    assert loss.item() == pytest.approx(head + 0.7 * sum(heads) / 2, rel=1e-5)
    right = sum(int(out.scores[n].argmax()) == int(batch.labels[n]) for n in upright)
    assert hits == right + sum(int(out.heads[1][n].argmax()) == joint[n] for n in range(12) if n not in upright)


def test_the_head_learns_from_upright_images_only(noise: ImageData) -> None:
    made = training(noise)
    made.model.eval()
    batch = first_batch(made)
    _, which, out = answered(made, batch)
    upright = which == 0
    alone = functional.cross_entropy(out.scores[upright], batch.labels[upright])
    loss, _ = made.objective(made.fit.forward, batch)
    both = (torch.autograd.grad(own, list(head_of(made.model).parameters())) for own in (loss, alone))
    for one, other in zip(*both, strict=True):
        torch.testing.assert_close(one, other)
    made.model.train()
    made.objective(made.fit.forward, batch)[0].backward()
    assert all(own.grad is not None and own.grad.abs().max() > 0 for own in made.model.parameters())


@pytest.mark.parametrize("stop", [1, 3, 4])
@pytest.mark.parametrize("views", [0, 2])
def test_a_checkpoint_continues_to_the_same_weights(noise: ImageData, stop: int, views: int, tmp_path: Path) -> None:
    recipe = replace(TURNED, distillation=0.5, temperature=2.0, relation=0.5, average=0.8, trivial=0.5, views=views)
    teacher = taught(noise)
    whole, first, second = (training(noise, recipe, teachers=[teacher]) for _ in range(3))
    assert whole.fit.steps_per_epoch == 3
    list(whole.epochs())
    list(islice(first.epochs(), stop // 3))  # whole epochs are recorded
    list(islice(first.fit.steps(), stop - first.fit.done))
    save_checkpoint(tmp_path / "checkpoint", first)
    load_checkpoint(tmp_path / "checkpoint", second)
    list(second.epochs())
    for one, other in ((whole.model, second.model), (whole.result, second.result)):
        theirs = other.state_dict()
        assert any(name.startswith("auxiliary.heads") for name in theirs)
        assert all(torch.equal(value, theirs[name]) for name, value in one.state_dict().items())
    other = training(noise, replace(recipe, auxiliary="pooled"), teachers=[teacher])
    with pytest.raises(InputError, match="another training"):
        load_checkpoint(tmp_path / "checkpoint", other)


def test_the_heads_of_a_teacher_are_in_its_file_and_only_loaded_for_students(noise: ImageData, tmp_path: Path) -> None:
    teacher, path, images = taught(noise), tmp_path / "teacher.safetensors", noise.images[:6]
    save_backbone(path, teacher)
    again, alone = load_backbone(path, auxiliary=True), load_backbone(path)
    assert replace(again.card, training={}) == replace(teacher.card, training={})
    assert (again.card.auxiliary, again.card.transforms) == ("convolution", ROTATIONS)
    heads = [all_outputs(own, own.normalise(images)).heads for own in (teacher, again)]
    for one, other in zip(*heads, strict=True):
        assert torch.equal(one, other)
    assert alone.auxiliary is None
    assert (alone.card.auxiliary, alone.card.transforms) == ("", ())
    assert alone.fingerprint() == again.fingerprint() == teacher.fingerprint()
    assert torch.equal(alone.extract(images), teacher.extract(images))
    small = tmp_path / "small.safetensors"
    save_backbone(small, alone)
    assert not any(name.startswith("auxiliary") for name in load_tensors(small)[0])
    assert load_backbone(small, auxiliary=True).auxiliary is None
    student = training(noise, teachers=[again], start=again, architecture="three")
    for one, other in zip(student.model.parameters(), teacher.parameters(), strict=True):
        assert torch.equal(one, other)


def test_a_file_that_lacks_a_head_or_has_too_many_is_refused(noise: ImageData, tmp_path: Path) -> None:
    path = tmp_path / "teacher.safetensors"
    save_backbone(path, taught(noise))
    tensors, meta = load_tensors(path)
    lacking = {name: value for name, value in tensors.items() if name != "auxiliary.heads.1.weight"}
    save_tensors(path, lacking, meta)
    with pytest.raises(FileFormatError, match="lacks the array auxiliary"):
        load_backbone(path)
    for fields in ({"auxiliary": "", "transforms": []}, {"auxiliary": "unheard of"}, {"seen_classes": None}):
        save_tensors(path, tensors, {**meta, "card": {**meta["card"], **fields}})
        with pytest.raises(FileFormatError):
            load_backbone(path)


def test_initial_weights_do_not_depend_on_auxiliary_heads(noise: ImageData) -> None:
    with_heads, without = training(noise), training(noise, Recipe(epochs=3, batch_size=12))
    theirs = with_heads.model.state_dict()
    assert all(torch.equal(value, theirs[name]) for name, value in without.model.state_dict().items())


@pytest.mark.parametrize("kind", ["convolution", "pooled"])
def test_it_learns_class_and_transform(kind: str, small: None) -> None:
    """Three classes of different colours; where the image is bright tells the rotation."""
    ramp = torch.arange(12.0).expand(12, 12) * 20
    images = torch.stack([torch.stack([ramp if c == label else ramp * 0 for c in range(3)]) for label in (0, 1, 2)])
    data = ImageData(images.byte().repeat(20, 1, 1, 1), torch.arange(60) % 3)
    recipe = replace(TURNED, epochs=25, mirror=False, auxiliary=kind)
    results = list(training(data, recipe, "wide", classes=(0, 1, 2)).epochs())
    assert results[-1].held_out_accuracy == 100
    assert results[-1].accuracy > 70  # 50 if no transformed image is recognised, 54 by chance


def test_recipes_that_cannot_work_are_refused(noise: ImageData) -> None:
    for change, message in (
        ({"auxiliary": "convolutoin"}, "did you mean 'convolution'"),
        ({"transforms": ("rotate91",)}, "did you mean 'rotate90'"),
        ({"transforms": ("gbr", "gbr")}, "must differ"),
        ({"transform_share": 0.0}, "transform_share above 0"),
        ({"transform_share": 1.0}, "below 1"),
        ({"transform_share": 0.99}, "no upright image"),
        ({"transforms": ()}, "transform_share above 0"),
        ({"auxiliary": ""}, "told apart by auxiliary heads"),
        ({"mixup": 0.2}, "mixup"),
        ({"rotation_share": 0.2}, "rotation_share"),
        ({"relation": -1.0}, "must not be negative"),
    ):
        with pytest.raises(InputError, match=message):
            replace(TURNED, **change)  # type: ignore[arg-type]
    grey = ImageData(noise.images[:, :1], noise.labels)
    with pytest.raises(InputError, match="swap the channels of colour images"):
        training(grey, replace(TURNED, transforms=SWAPS))
    with pytest.raises(InputError, match="needs a teacher"):
        training(noise, replace(TURNED, relation=0.5))
