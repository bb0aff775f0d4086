"""What twenty suggested images teach, against twenty random images and other rules.

    python benchmarks/few_images.py features FOLDER OUT.npz        # once for each folder of class folders
    python benchmarks/suggest.py OUT.npz ... --json benchmarks/results/suggest.json

For each folder and draw: 15 classes, and a pool of 3 to 25 unlabelled images of each (so some classes are rare in it).
A model knows a few images of all classes, or of twelve of them. Twenty images of the pool are labelled and learned;
then the accuracy on 15 other images of every class is compared. Results are means over draws, in points above twenty
random images (five random choices per draw).
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from dsal import DSALClassifier, __version__
from dsal.image_model.image_predictor import doubts, most_useful
from dsal.image_model.model import GAMMA

CLASSES, HELD_OUT, COUNT, WIDTH = 15, 15, 20, 1024
SETTINGS = {"1 image a class": (1, 15), "4 images": (4, 15), "4 images, 3 classes new": (4, 12), "10 images": (10, 15)}
Matrix = NDArray[np.float64]
Rule = Callable[[Matrix, Matrix, np.random.Generator], list[int]]

RULES: dict[str, Rule] = {
    "suggested": lambda x, likely, _: most_useful(x.astype(np.float32), likely, COUNT),
    "least margin": lambda x, likely, _: np.argsort(-doubts(likely))[:COUNT].tolist(),
    "without doubts": lambda x, likely, _: most_useful(x.astype(np.float32), np.ones((len(x), 1)), COUNT),
    "least likely": lambda x, likely, _: np.argsort(likely.max(1))[:COUNT].tolist(),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", type=Path, nargs="+")
    parser.add_argument("--draws", type=int, default=4)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    folders = {
        path.stem: {name: study(path, arguments.draws, *setting) for name, setting in SETTINGS.items()}
        for path in arguments.files
    }
    document = {
        "images_labelled": COUNT,
        "draws": arguments.draws,
        "expansion_size": WIDTH,
        "defaults": {"gamma": GAMMA},
        "dsal": __version__,
        "points_above_random": folders,
        "mean": {
            rule: round(float(np.mean([gains[rule] for folder in folders.values() for gains in folder.values()])), 2)
            for rule in RULES
        },
    }
    text = json.dumps(document, indent=1)
    print(text)
    if arguments.json:
        arguments.json.write_text(text + "\n")


def study(path: Path, draws: int, images: int, known: int) -> dict[str, float]:
    """Return the mean gain over random images in points, by rule."""
    data = np.load(path)
    gains: dict[str, list[float]] = {}
    for draw in range(draws):
        for rule, gain in one_draw(data["x"].astype(np.float64), data["y"], draw, images, known):
            gains.setdefault(rule, []).append(gain)
    return {rule: round(float(np.mean(some)), 2) for rule, some in gains.items()}


def one_draw(x: Matrix, y: NDArray[np.str_], draw: int, images: int, known: int) -> Iterator[tuple[str, float]]:
    random = np.random.default_rng(draw)
    labels = np.unique(y)
    classes = labels[random.permutation(len(labels))[:CLASSES]]
    rows = [random.permutation(np.flatnonzero(y == label)) for label in classes]
    test = np.concatenate([some[-HELD_OUT:] for some in rows])
    learned = np.concatenate([some[:images] for some in rows[:known]])
    pool = np.concatenate([some[20 : 20 + random.integers(3, 26)] for some in rows])

    def model() -> DSALClassifier:
        return DSALClassifier(expansion_size=WIDTH, gamma=GAMMA).partial_fit(x[learned], y[learned])

    def accuracy(chosen: list[int]) -> float:
        return 100 * model().partial_fit(x[pool[chosen]], y[pool[chosen]]).score(x[test], y[test])

    likely = model().predict_proba(x[pool])
    chance = np.mean([accuracy(random.permutation(len(pool))[:COUNT].tolist()) for _ in range(5)])
    for name, rule in RULES.items():
        yield name, accuracy(rule(x[pool], likely, random)) - chance


if __name__ == "__main__":
    with threadpool_limits(1):
        main()
