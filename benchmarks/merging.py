"""Probabilities and novelty of models merged from several sites, against a model taught all images at once.

    python benchmarks/few_images.py features FOLDER OUT.npz        # once for each folder of class folders
    python benchmarks/merging.py OUT.npz ... --json benchmarks/results/merging.json

For each folder and draw: six classes of 20 images are taught jointly, at six sites with one class each, and at two
sites with three classes each. The tests are on 30 other images of each class, and 30 images of each of three unknown
classes.
"""

from __future__ import annotations

import argparse
import json
from functools import reduce
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from dsal import DSALClassifier, ImageModel, __version__
from dsal.backbones.pretrained import DEFAULT, open_backbone
from dsal.image_model.outcomes import THRESHOLD

KNOWN, UNKNOWN, LEARNED, HELD_OUT, WIDTH, GAMMAS = 6, 3, 20, 30, 1024, (100.0, 10.0, 0.1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", type=Path, nargs="+")
    parser.add_argument("--draws", type=int, default=2)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    backbone = open_backbone(DEFAULT)

    def model(x: NDArray[np.float32], y: NDArray[np.str_], rows: list[NDArray[np.int64]], gamma: float) -> ImageModel:
        learned = np.concatenate(rows)
        taught = ImageModel(backbone, DSALClassifier(expansion_size=WIDTH, gamma=gamma))
        taught.learn_features(x[learned], y[learned])
        return taught

    found: dict[str, dict[str, dict[str, dict[str, float]]]] = {}
    for path in arguments.files:
        data = np.load(path)
        x, y = data["x"].astype(np.float32), data["y"]
        for gamma in GAMMAS:
            sides: dict[str, list[dict[str, float]]] = {}
            for draw in range(arguments.draws):
                random = np.random.default_rng(50 + draw)
                classes = random.permutation(np.unique(y))[: KNOWN + UNKNOWN]
                rows = [random.permutation(np.flatnonzero(y == label)) for label in classes]
                learned = [some[:LEARNED] for some in rows[:KNOWN]]
                test = np.concatenate([some[-HELD_OUT:] for some in rows])
                for name, sites in (("jointly", 1), ("six sites", 6), ("two sites", 2)):
                    parts = [learned[start::sites] for start in range(sites)]
                    merged = reduce(ImageModel.merge, [model(x, y, part, gamma) for part in parts])
                    sides.setdefault(name, []).append(measure(merged, x[test], y[test]))
            found.setdefault(path.stem, {})[f"gamma {gamma:g}"] = {
                name: {key: round(float(np.mean([one[key] for one in some])), 3) for key in some[0]}
                for name, some in sides.items()
            }
    text = json.dumps({"draws": arguments.draws, "d_B": WIDTH, "dsal": __version__, "folders": found}, indent=1)
    print(text)
    if arguments.json:
        arguments.json.write_text(text + "\n")


def measure(model: ImageModel, x: NDArray[np.float32], y: NDArray[np.str_]) -> dict[str, float]:
    """Return accuracy and mean score on known classes, and how many known and unknown images are flagged."""
    likely, novelty = model._answerer().scores(x)
    labels = np.array(model.classes)
    known, flagged = np.isin(y, labels), novelty > THRESHOLD
    return {
        "accuracy": float((labels[likely.argmax(1)] == y)[known].mean()),
        "mean_score": float(likely.max(1)[known].mean()),
        "known_flagged": float(flagged[known].mean()),
        "unknown_flagged": float(flagged[~known].mean()),
    }


if __name__ == "__main__":
    with threadpool_limits(1):
        main()
