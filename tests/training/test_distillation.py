"""Teachers: what each head of a student is taught, by whom, on which images."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional

from dsal.data import ImageData
from dsal.training import BaseTraining, Batch, Forward, Recipe
from dsal.training.augment import ROTATIONS, SWAPS, mixup, resized, transformed
from dsal.training.objective import RELATION_TEMPERATURE, all_outputs, head_of, relations

from .conftest import TURNED, answered, first_batch, taught, training


def test_every_head_is_taught_by_the_teachers_head(noise: ImageData) -> None:
    teacher, recipe = taught(noise), replace(TURNED, distillation=0.6, temperature=2.0, auxiliary_weight=0.5)
    student = training(noise, recipe, teachers=[teacher])
    student.model.eval()
    batch = first_batch(student)
    x, which, mine = answered(student, batch)
    theirs = all_outputs(teacher, x)
    assert len(theirs.heads) == 3  # the student's two heads are taught by the last two

    def distance(scores: Tensor, by: Tensor) -> Tensor:
        return -4 * ((by / 2).softmax(1) * (scores / 2).log_softmax(1)).sum(1).mean()

    upright, joint = which == 0, 4 * batch.labels + which
    head = 0.4 * functional.cross_entropy(mine.scores[upright], batch.labels[upright])
    head = head + 0.6 * distance(mine.scores, theirs.scores)  # for transformed images, too
    heads = [
        0.4 * functional.cross_entropy(own, joint) + 0.6 * distance(own, other)
        for own, other in zip(mine.heads, theirs.heads[1:], strict=True)
    ]
    loss, _ = student.objective(student.fit.forward, batch)
    assert loss.item() == pytest.approx((head + 0.5 * sum(heads) / 2).item(), rel=1e-5)


def test_a_teacher_with_fewer_heads_teaches_all_of_the_students(noise: ImageData) -> None:
    teacher, recipe = taught(noise, "two"), replace(TURNED, distillation=1.0)
    student = training(noise, recipe, "three", teachers=[teacher])
    x, which, _ = answered(student, first_batch(student))
    answers, theirs = student.objective.teachers.ask(x, which == 0, 0), all_outputs(teacher, x)
    for own, other in zip(answers.heads, (0, 0, 1), strict=True):
        torch.testing.assert_close(own, theirs.heads[other].softmax(1))


def test_a_teacher_without_such_heads_teaches_upright_images(noise: ImageData) -> None:
    plain = taught(noise, recipe=Recipe(epochs=1, batch_size=12))
    swaps = taught(noise, recipe=replace(TURNED, transforms=SWAPS))  # knows other transforms
    versed, recipe = taught(noise), replace(TURNED, distillation=0.6, relation=1.0)
    for teachers in ([plain], [plain, swaps], [plain, versed]):
        student = training(noise, recipe, teachers=teachers)
        batch = first_batch(student)
        x, which, _ = answered(student, batch)
        answers, upright = student.objective.teachers.ask(x, which == 0, 0), which == 0
        probabilities = [head_of(own)(own.network(x)).softmax(1) for own in teachers]
        mean = sum(probabilities) / len(teachers)
        if versed in teachers:
            expected = torch.where(upright[:, None], mean, probabilities[1])
            assert answers.known.all()
            assert len(answers.heads) == 2
        else:
            expected = mean[upright]
            assert answers.known.tolist() == upright.tolist()
            assert answers.heads == ()
        torch.testing.assert_close(answers.scores, expected)
        assert student.objective(student.fit.forward, batch)[0].isfinite()


def test_relations_are_softmaxes_of_cosines(noise: ImageData) -> None:
    rows = torch.randn(5, 4, generator=torch.Generator().manual_seed(0))
    centred = (rows - rows.mean(0)).numpy().astype(np.float64)
    for n, own in enumerate(relations(rows).exp()):
        others = [m for m in range(5) if m != n]
        cosines = [centred[n] @ centred[m] / np.linalg.norm(centred[n]) / np.linalg.norm(centred[m]) for m in others]
        weights = np.exp(np.array(cosines) / RELATION_TEMPERATURE)
        np.testing.assert_allclose(own.numpy(), weights / weights.sum(), rtol=1e-4)
    teacher, recipe = taught(noise), replace(TURNED, relation=0.3)
    student, without = training(noise, recipe, teachers=[teacher]), training(noise)
    for made in (student, without):
        made.model.eval()
    x, _, mine = answered(student, first_batch(student))
    theirs = all_outputs(teacher, x)
    related = functional.cross_entropy(relations(mine.pooled), relations(theirs.pooled).exp())
    losses = [made.objective(made.fit.forward, first_batch(made))[0].item() for made in (student, without)]
    assert losses[0] == pytest.approx(losses[1] + 0.3 * related.item(), rel=1e-5)


def before(made: BaseTraining, forward: Forward, batch: Batch) -> tuple[Tensor, int]:
    """The loss as it was before there were auxiliary heads, word for word."""
    recipe, images, labels = made.recipe, batch.images, batch.labels
    if recipe.rotation_share:
        images, turns = transformed(images, ROTATIONS, recipe.rotation_share, batch.generator)
        labels = 4 * labels + turns
    x = resized(made.model.normalise(images), recipe.size(batch.progress))
    partner, weight = None, 1.0
    if recipe.mixup:
        x, partner, weight = mixup(x, recipe.mixup, batch.generator)
    mine, targets = x[batch.mine].contiguous(memory_format=torch.channels_last), labels[batch.mine]
    scores = forward(mine).float()
    loss = functional.cross_entropy(scores, targets, label_smoothing=recipe.label_smoothing)
    if recipe.distillation:
        upright = targets % made.turns == 0
        with torch.no_grad():
            answers = torch.stack([head_of(own)(own.network(mine[upright])) for own in made.teachers]).float()
            probabilities = (answers / recipe.temperature).softmax(dim=2).mean(dim=0)
        own = functional.cross_entropy(scores[upright][:, :: made.turns] / recipe.temperature, probabilities)
        loss = torch.lerp(loss, recipe.temperature**2 * own, recipe.distillation)
    if partner is not None:
        other = functional.cross_entropy(scores, labels[partner][batch.mine], label_smoothing=recipe.label_smoothing)
        loss = weight * loss + (1 - weight) * other
    return loss, int((scores.argmax(1) == targets).sum())


def test_recipes_without_auxiliary_heads_give_the_same_weights_as_before(noise: ImageData) -> None:
    plain = Recipe(epochs=2, batch_size=12, optimiser="muon", trivial=0.5, sizes=((0.5, 8),))
    rich = replace(plain, label_smoothing=0.1, mixup=0.3, rotation_share=0.25, average=0.9, cutout=3)
    for recipe in (plain, rich, replace(rich, distillation=0.6, temperature=3.0)):
        teachers = [taught(noise), taught(noise, "two", Recipe(epochs=1, batch_size=12))] if recipe.distillation else []
        now, then = (training(noise, recipe, teachers=teachers) for _ in range(2))
        then.fit.loss = lambda forward, batch, made=then: before(made, forward, batch)
        curves = [[(result.loss, result.accuracy) for result in made.epochs()] for made in (now, then)]
        assert curves[0] == curves[1]
        theirs = then.backbone({}).state_dict()
        assert all(torch.equal(value, theirs[name]) for name, value in now.backbone({}).state_dict().items())
