"""Choose a recipe for base training without looking at later classes.

The proxy imitates the real task within the first half of CIFAR-100: classes 0-39 are the base, classes 40-49 the new
ones. A backbone is trained on nine tenths of the base *training* images; then DS-AL learns the base and the new classes
from its features, and is tested on the held-out base images and, a fifth at a time, on all images of the new classes.
No test image and no class from 50 up is ever used.

    python benchmarks/proxy.py NAME --set optimiser=muon --set trivial=0.5 --epochs 12

appends a line to ``benchmarks/results/proxy.jsonl``; a killed run continues where it stopped. Weights of an earlier
trial are judged again, without training, by

    python benchmarks/proxy.py NAME --trained weights.safetensors --shift 1
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
from dsal.backbones import Backbone, load_backbone, save_backbone
from dsal.backbones.extraction import extract_dataset
from dsal.data import DataSet, FeatureSet, ImageData, load_dataset, save_features
from dsal.data.dataset import fingerprint
from dsal.training import BaseTraining, Recipe, choose_precision, load_checkpoint, save_checkpoint
from dsal.training.augment import resized

RESULTS = Path(__file__).parent / "results" / "proxy.jsonl"
BASE, NEW, HELD_OUT, FOLDS = tuple(range(40)), tuple(range(40, 50)), 0.1, 5


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", help="name of the row")
    parser.add_argument("--set", action="append", default=[], metavar="FIELD=VALUE", help="a field of the recipe")
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--side", type=int, help="side of all images, to the end; 16 makes a trial four times cheaper")
    parser.add_argument("--data-root", type=Path)
    parser.add_argument("--features", type=Path, help="file for the features, to tune methods and thresholds on")
    parser.add_argument("--weights", type=Path, help="file for the weights, to continue from with --start")
    parser.add_argument("--start", type=Path, help="weights of an earlier trial, as start and as teacher")
    parser.add_argument("--trained", type=Path, help="weights of an earlier trial to judge, instead of training")
    parser.add_argument("--shift", type=int, default=0, help="average features over shifts by so many pixels")
    parser.add_argument("--expansion-size", type=int, default=2048)
    arguments = parser.parse_args()
    fields = dict(item.split("=", 1) for item in arguments.set)
    recipe = Recipe(epochs=arguments.epochs, **{name: _value(text) for name, text in fields.items()})
    if arguments.side:
        recipe = replace(recipe, sizes=((2.0, arguments.side),))
    data = load_dataset("cifar100", arguments.data_root).train
    training = make_training(data, recipe, BASE, arguments.start)
    row: dict[str, Any] = {"name": arguments.name, "shift": arguments.shift}
    if arguments.trained:
        backbone = load_backbone(arguments.trained)
        row["trained"] = arguments.trained.name
    else:
        began = time.process_time()
        train(training, RESULTS.with_name(f"{arguments.name}.checkpoint"))
        backbone = training.backbone({}, auxiliary=True)
        row["recipe"] = {name: value for name, value in asdict(recipe).items() if value != getattr(Recipe, name, None)}
        row["cpu_seconds"] = round(time.process_time() - began)
        row["training_accuracy"] = training.history[-1].accuracy
        row["head_accuracy"] = training.history[-1].held_out_accuracy
    proxy = extract(backbone, training, data, arguments.shift)
    row.update(evaluate(proxy, arguments.expansion_size))
    if arguments.weights:
        save_backbone(arguments.weights, backbone)
    if arguments.features:
        save_features(arguments.features, proxy)
    with RESULTS.open("a") as file:
        file.write(json.dumps(row) + "\n")
    print(json.dumps(row, indent=1))


def shrink(data: ImageData, side: int | None) -> ImageData:
    """Return the images resized to another side, as in training; unchanged for None."""
    parts = [resized(part.float(), side) for part in data.images.split(5000)]
    return ImageData(torch.cat([part.round().clamp(0, 255).byte() for part in parts]), data.labels)


def make_training(data: ImageData, recipe: Recipe, classes: tuple[int, ...], start: Path | None = None) -> BaseTraining:
    """Return a training on some classes, a tenth of each held out; the same tenth for every recipe."""
    return BaseTraining(
        data,
        dataset="cifar100",
        classes=classes,
        class_order="natural",
        architecture="resnet32",
        recipe=recipe,
        held_out=HELD_OUT,
        start=None if start is None else load_backbone(start, auxiliary=True),
        teachers=[] if start is None else [load_backbone(start, auxiliary=True)],
        device=torch.device("cpu"),
        precision=choose_precision("auto", torch.device("cpu")),
    )


def train(training: BaseTraining, checkpoint: Path) -> None:
    if checkpoint.exists():
        load_checkpoint(checkpoint, training)
    for result in training.epochs():
        save_checkpoint(checkpoint, training)
        print(result)
    checkpoint.unlink()


def extract(backbone: Backbone, training: BaseTraining, data: ImageData, shift: int = 0) -> FeatureSet:
    """Extract features of all fifty classes, image and mirror image; the test part is held-out training images.

    Images have their size at the end of the training.
    """
    side = training.recipe.size(1.0)
    data, training.train, training.held_out = (shrink(part, side) for part in (data, training.train, training.held_out))
    alone = replace(training.recipe, distillation=0.0, relation=0.0)
    new = make_training(data, alone, NEW)  # only for its split of the new classes
    backbone.card = replace(backbone.card, flip=True, shift=shift)
    train, held_out = (
        ImageData(torch.cat([old.images, more.images]), torch.cat([old.labels, more.labels + len(BASE)]))
        for old, more in ((training.train, new.train), (training.held_out, new.held_out))
    )
    names = tuple(str(label) for label in BASE + NEW)
    return extract_dataset(backbone, DataSet("proxy", train, held_out, names, fingerprint(train, held_out)))


def evaluate(proxy: FeatureSet, expansion_size: int) -> dict[str, list[float]]:
    """Return the accuracy over all fifty classes, the base and the new ones, in percent; by kind of features.

    The backbone has seen none of the new classes, so all of their images can be used as test images: a fifth of them
    at a time, while the head (both streams, phase by phase) learns the others. Of the base, only held-out images are.
    """
    rows = {}
    for kind in proxy.widths:
        part = proxy.select(kind)
        x, y = np.concatenate([part.train_x, part.test_x]), np.concatenate([part.train_y, part.test_y])
        new, trained = y >= len(BASE), np.arange(len(y)) < len(part.train_y)
        fold = np.random.RandomState(0).randint(FOLDS, size=len(y))
        right: list[list[float]] = []
        for turn in range(FOLDS):
            tested = np.where(new, fold == turn, ~trained)
            head = DSALClassifier(expansion_size=expansion_size, random_state=turn)
            for learned in (~new & ~tested, new & ~tested):
                head.partial_fit(x[learned], y[learned])
            hits = head.predict(x[tested]) == y[tested]
            base, fresh = hits[~new[tested]].mean(), hits[new[tested]].mean()
            right.append([(len(BASE) * base + len(NEW) * fresh) / len(BASE + NEW), base, fresh])
        rows[kind] = [round(100 * float(value), 2) for value in np.mean(right, axis=0)]
    return rows


def _value(text: str) -> Any:
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text


if __name__ == "__main__":
    main()
