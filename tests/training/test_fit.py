"""The loop by itself: any loss, any samples, stopped after any step."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path

import pytest
import torch
from PIL import Image
from torch import Tensor, nn
from torch.nn import functional

from dsal.data import FileData, ImageData, Samples, load_dataset
from dsal.training import Batch, Fit, Forward, Recipe

# 5 steps an epoch, and everything that keeps a state.
RECIPE = Recipe(epochs=3, batch_size=8, optimiser="muon", trivial=0.5, cutout=4, average=0.8, warmup=0.2)


class Small(nn.Module):
    """A convolution, a normalisation that counts its batches, a head."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.body = nn.Sequential(nn.Conv2d(1, 4, 3, 2), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten())
        self.head = nn.Linear(4 * 13 * 13, 4)

    def forward(self, x: Tensor) -> Tensor:
        scores: Tensor = self.head(self.body(x))
        return scores


def loss(forward: Forward, batch: Batch) -> tuple[Tensor, int]:
    scores = forward(batch.images.float() / 255)
    noise = torch.rand((), generator=batch.generator)  # a loss may draw numbers, too
    return functional.cross_entropy(scores, batch.labels) * (1 + 0.1 * noise), int((scores.argmax(1) == 0).sum())


@pytest.fixture(scope="module")
def images() -> ImageData:
    data = load_dataset("omniglot").train
    return data.take(torch.nonzero(data.labels < 4).flatten()[:43])


def made(samples: Samples, module: nn.Module | None = None, recipe: Recipe = RECIPE) -> Fit:
    return Fit(module or Small(), samples, loss, recipe, seed=5, device=torch.device("cpu"))


def same(one: nn.Module, other: nn.Module) -> bool:
    theirs = other.state_dict()
    return all(torch.equal(value, theirs[name]) for name, value in one.state_dict().items())


@pytest.mark.parametrize(("stop", "optimiser"), [*((stop, "muon") for stop in (1, 4, 5, 7, 14, 15)), (7, "adam")])
def test_stopped_after_any_step_it_ends_with_the_same_weights(images: ImageData, stop: int, optimiser: str) -> None:
    recipe = replace(RECIPE, optimiser=optimiser)
    unbroken, first = made(images, recipe=recipe), made(images, recipe=recipe)
    assert [progress.done for progress in unbroken.steps()] == list(range(1, 16))
    for _ in islice(first.steps(), stop):
        pass
    weights = {name: value.clone() for name, value in first.module.state_dict().items()}
    arrays, facts = first.arrays(), first.facts()
    list(islice(first.steps(), 2))  # what was said of the state is not touched by what comes after
    second = made(images, recipe=recipe)
    second.module.load_state_dict(weights)
    second.restore(arrays, facts)
    assert len(list(second.steps())) == 15 - stop
    assert same(second.module, unbroken.module)
    assert same(second.result, unbroken.result)
    assert not same(second.result, second.module)
    assert second.means() == unbroken.means()


def test_a_caller_may_evaluate_between_two_steps(images: ImageData) -> None:
    undisturbed, disturbed = made(images), made(images)
    for _ in undisturbed.steps():
        pass
    for _ in disturbed.steps():
        disturbed.module.eval()
        torch.rand(3)
    assert same(disturbed.module, undisturbed.module)


def test_frozen_parameters_stay(images: ImageData) -> None:
    module = Small()
    module.body.requires_grad_(False)
    for _ in made(images, module).steps():
        pass
    assert torch.equal(module.body[0].weight, Small().body[0].weight)
    assert not torch.equal(module.head.weight, Small().head.weight)


def test_files_train_as_images_in_memory_do(images: ImageData, tmp_path: Path) -> None:
    def written() -> Iterator[Path]:
        for number, image in enumerate(images.images):
            path = tmp_path / f"{number}.png"
            Image.fromarray(image[0].numpy()).save(path)
            yield path

    files = FileData(tuple(written()), images.labels).at(28, 1)
    lazy, held = made(files), made(files.in_memory())
    for fit in (lazy, held):
        list(fit.steps())
    assert same(lazy.module, held.module)
