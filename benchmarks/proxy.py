"""Choose a recipe of base training without looking at the classes that come later.

The proxy plays the real thing inside the first half of CIFAR-100: classes 0-39 are the base, classes 40-49 the new
ones, and a tenth of the *training* images of each class is the test. A backbone is trained on the base alone; then a
ridge head (random ReLU expansion) is fitted to the features of all fifty classes. No test image and no class from 50
up is ever touched.

    python benchmarks/proxy.py NAME --set optimiser=muon --set trivial=0.5 --epochs 12

appends a line to ``benchmarks/results/proxy.jsonl``; a killed run goes on where it stopped.
"""

from __future__ import annotations

import argparse
import ast
import json
import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from dsal import DSALClassifier
from dsal.backbones import Backbone
from dsal.data import ImageData, load_dataset
from dsal.training import BaseTraining, Recipe, load_checkpoint, save_checkpoint

RESULTS = Path(__file__).parent / "results" / "proxy.jsonl"
BASE, NEW, HELD_OUT = tuple(range(40)), tuple(range(40, 50)), 0.1


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", help="what the row is called")
    parser.add_argument("--set", action="append", default=[], metavar="FIELD=VALUE", help="a field of the recipe")
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--data-root", type=Path)
    parser.add_argument("--expansion-size", type=int, default=2048)
    arguments = parser.parse_args()
    fields = dict(item.split("=", 1) for item in arguments.set)
    recipe = Recipe(epochs=arguments.epochs, **{name: _value(text) for name, text in fields.items()})
    data = load_dataset("cifar100", arguments.data_root).train
    training = make_training(data, recipe, BASE)
    began = time.process_time()
    train(training, RESULTS.with_name(f"{arguments.name}.checkpoint"))
    row = {
        "name": arguments.name,
        "recipe": {name: value for name, value in asdict(recipe).items() if value != getattr(Recipe, name, None)},
        "cpu_seconds": round(time.process_time() - began),
        "training_accuracy": training.history[-1].accuracy,
        "head_accuracy": training.history[-1].held_out_accuracy,
        **evaluate(training, data, arguments.expansion_size),
    }
    with RESULTS.open("a") as file:
        file.write(json.dumps(row) + "\n")
    print(json.dumps(row, indent=1))


def make_training(data: ImageData, recipe: Recipe, classes: tuple[int, ...]) -> BaseTraining:
    """A training on some classes, a tenth of each held out; the same tenth whatever the recipe."""
    return BaseTraining(
        data,
        dataset="cifar100",
        classes=classes,
        class_order="natural",
        architecture="resnet32",
        recipe=recipe,
        held_out=HELD_OUT,
        device=torch.device("cpu"),
    )


def train(training: BaseTraining, checkpoint: Path) -> None:
    if checkpoint.exists():
        load_checkpoint(checkpoint, training)
    for result in training.epochs():
        save_checkpoint(checkpoint, training)
        print(result)
    checkpoint.unlink()


def evaluate(training: BaseTraining, data: ImageData, expansion_size: int) -> dict[str, list[float]]:
    """Accuracy on held-out images of all fifty classes, of the base, of the new ones; by kind of features."""
    new = make_training(data, training.recipe, NEW)  # only for its split of the new classes
    backbone = training.backbone({})
    test_y = torch.cat([training.held_out.labels, new.held_out.labels + len(BASE)]).numpy()
    train_y = torch.cat([training.train.labels, new.train.labels + len(BASE)]).numpy()
    rows = {}
    for flip in (False, True):
        backbone.card = replace(backbone.card, flip=flip)
        train_x, test_x = (
            np.concatenate([_features(backbone, part.images) for part in parts])
            for parts in ((training.train, new.train), (training.held_out, new.held_out))
        )
        for kind, columns in (("last", slice(-backbone.stage_widths[-1], None)), ("all", slice(None))):
            head = DSALClassifier(expansion_size=expansion_size, compensation=0).fit(train_x[:, columns], train_y)
            right = head.predict(test_x[:, columns]) == test_y
            base = test_y < len(BASE)
            rows[kind + " flip" * flip] = [
                round(100 * float(part.mean()), 2) for part in (right, right[base], right[~base])
            ]
    return rows


def _features(backbone: Backbone, images: torch.Tensor) -> Any:
    return torch.cat([backbone.extract(part) for part in images.split(500)]).numpy()


def _value(text: str) -> Any:
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text


if __name__ == "__main__":
    main()
