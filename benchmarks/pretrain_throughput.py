"""Speed of base training against a plain PyTorch loop, side by side in one process.

Plain: a DataLoader whose data set transforms one image at a time (pad, crop, flip; then to a normalised tensor),
float32, the default memory format. Ours: the loop behind ``dsal pretrain``. Both train ResNet-32 with SGD on the same
images and the same batch size. They take turns; medians are reported.

    python benchmarks/pretrain_throughput.py

Rows: the same work (full-size images, crop and flip), and the ``strong`` recipe as a whole, whose early epochs use
smaller images: its rate is the images of all epochs over the time of all epochs, from the measured rate at each size.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from dsal.backbones.resnet import resnet32
from dsal.data import ImageData, load_dataset
from dsal.protocol.provenance import environment
from dsal.training import RECIPES, BaseTraining, Recipe, choose_device, choose_precision

RESULTS = Path(__file__).parent / "results" / "pretrain_throughput.json"
BATCH, STEPS = 128, 4


class OneByOne(Dataset[tuple[Tensor, int]]):
    """A typical first loop: one image, one transform at a time."""

    def __init__(self, data: ImageData) -> None:
        self.images, self.labels = data.images, data.labels

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        image = nn.functional.pad(self.images[index], (4, 4, 4, 4))
        top, left = random.randint(0, 8), random.randint(0, 8)
        image = image[:, top : top + 32, left : left + 32]
        if random.random() < 0.5:
            image = image.flip(2)
        mean, std = torch.tensor([0.507, 0.487, 0.441]), torch.tensor([0.267, 0.256, 0.276])
        return (image.float() / 255 - mean[:, None, None]) / std[:, None, None], int(self.labels[index])


def plain_steps(data: ImageData) -> Callable[[], None]:
    """Return a plain training loop; each call takes some steps."""
    net = nn.Sequential(resnet32(), nn.Linear(64, 50))
    optimiser = torch.optim.SGD(net.parameters(), 0.1, 0.9, weight_decay=5e-4)
    loader = iter(DataLoader(OneByOne(data), BATCH, shuffle=True))

    def steps() -> None:
        for _ in range(STEPS):
            images, labels = next(loader)
            loss = nn.functional.cross_entropy(net(images), labels)
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()

    return steps


def our_steps(data: ImageData, recipe: Recipe) -> Callable[[], None]:
    """Return a function that runs the package's own loop, over just enough images."""
    few = ImageData(data.images[: BATCH * STEPS], data.labels[: BATCH * STEPS])
    device = choose_device("cpu")
    training = BaseTraining(
        few,
        dataset="cifar100",
        classes=tuple(range(50)),
        class_order="natural",
        architecture="resnet32",
        recipe=replace(recipe, epochs=10_000, warmup=0.0),
        device=device,
        precision=choose_precision("auto", device),
    )
    epochs = training.epochs()
    return lambda: (next(epochs), None)[1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-root", type=Path)
    parser.add_argument("--rounds", type=int, default=7)
    arguments = parser.parse_args()
    data = load_dataset("cifar100", arguments.data_root).train
    base = (data.labels < 50).nonzero().squeeze(1)
    data = ImageData(data.images[base], data.labels[base])
    strong = RECIPES.get("strong")
    sizes = [*strong.sizes, (1.0, 32)] if not strong.sizes or strong.sizes[-1][0] < 1 else list(strong.sizes)
    runners = {"plain loop": plain_steps(data), "dsal, the same work": our_steps(data, Recipe(epochs=1))}
    for _, side in sizes:
        runners[f"dsal strong at {side} pixels"] = our_steps(data, replace(strong, sizes=((1.0, side),)))
    seconds: dict[str, list[float]] = {name: [] for name in runners}
    for round_number in range(arguments.rounds + 1):
        for name, run in runners.items():
            began = time.perf_counter()
            run()
            if round_number:  # the first is a warm-up
                seconds[name].append(time.perf_counter() - began)
    rates = {name: BATCH * STEPS / statistics.median(taken) for name, taken in seconds.items()}
    shares = [until - start for (until, _), start in zip(sizes, [0.0, *(until for until, _ in sizes)], strict=False)]
    time_per_image = sum(
        share / rates[f"dsal strong at {side} pixels"] for share, (_, side) in zip(shares, sizes, strict=True)
    )
    rates["dsal strong, whole training"] = 1 / time_per_image
    for name, rate in rates.items():
        print(f"{name:32} {rate:7.0f} images/s  {rate / rates['plain loop']:5.2f} x")
    result = {"images_per_second": rates, "rounds": arguments.rounds, "environment": environment()}
    RESULTS.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
