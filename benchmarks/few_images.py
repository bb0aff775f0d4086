"""1 to 50 images per class: the defaults for own images against logistic regression and the nearest class mean.

    python benchmarks/few_images.py features FOLDER OUT.npz        # once for each folder of class folders
    python benchmarks/few_images.py study OUT.npz ... --json benchmarks/results/few-images.json

For each folder and draw: 15 classes (or all, if there are fewer), n images of each to learn from, 15 others of each to
test on; a folder takes part up to the size for which all its classes have enough images. Each image model learns all
classes in one lesson, and once more in three lessons of five classes. ``dsal, gamma 0.1`` has the penalty of
``DSALClassifier()``. The calibration error (15 bins) is computed over all draws of a folder together, beside the error
that perfect scores would have (the floor). Logistic regression chooses C from 0.001, 0.01 ... 100 by cross-validation
(with one image per class, C = 1). All methods use the same standardised features.

``--dual`` solves for one weight per image instead of one per unit of the expansion. The model is the same up to
rounding, in a hundredth of the time, but there is only one lesson.
"""

from __future__ import annotations

import argparse
import json
import platform
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import softmax
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, StratifiedKFold
from threadpoolctl import threadpool_limits

from dsal import DSALClassifier, __version__
from dsal.analytic.activations import resolve
from dsal.analytic.expansion import expansions
from dsal.backbones.pretrained import DEFAULT, open_backbone
from dsal.classifier.calibration import Calibration, as_new
from dsal.data.images.labelled_files import read_files
from dsal.image_model.image_features import BackboneFeatures
from dsal.image_model.model import GAMMA

SIZES, CLASSES, HELD_OUT, LEAST, MOST, BINS = (1, 2, 3, 5, 10, 20, 50), 15, 15, 35, 90, 15
Matrix = NDArray[np.float64]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    features = commands.add_parser("features")
    features.add_argument("folder", type=Path)
    features.add_argument("out", type=Path)
    features.add_argument("--backbone", default=DEFAULT)
    study_ = commands.add_parser("study")
    study_.add_argument("files", type=Path, nargs="+")
    study_.add_argument("--draws", type=int, default=6)
    study_.add_argument("--dual", action="store_true", help="one lesson only, in a hundredth of the time")
    study_.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    if arguments.command == "features":
        extract(arguments.folder, arguments.out, arguments.backbone)
        return
    folders = {path.stem: study(path, arguments.draws, arguments.dual) for path in arguments.files}
    document = {
        "defaults": {"gamma": GAMMA},
        "draws": arguments.draws,
        "dual": arguments.dual,
        "classes": CLASSES,
        "held_out": HELD_OUT,
        "dsal": __version__,
        "python": platform.python_version(),
        "folders": folders,
        "mean": {n: mean([folder[n] for folder in folders.values() if n in folder]) for n in map(str, SIZES)},
    }
    text = json.dumps(document, indent=1)
    print(text)
    if arguments.json:
        arguments.json.write_text(text + "\n")


def mean(folders: list[dict[str, dict[str, float]]]) -> dict[str, dict[str, float]]:
    """Return the means over the folders that have enough images."""
    return {
        name: {key: round(float(np.mean([folder[name][key] for folder in folders])), 4) for key in values}
        for name, values in folders[0].items()
    }


def extract(folder: Path, out: Path, backbone: str) -> None:
    """Extract features of at most 90 images of each class that has 35 or more."""
    files, random = read_files(folder), np.random.default_rng(0)
    labels = np.array(files.labels)
    rows = [random.permutation(np.flatnonzero(labels == label))[:MOST] for label in sorted(set(files.labels))]
    chosen = np.concatenate([some for some in rows if len(some) >= LEAST])
    found = BackboneFeatures(open_backbone(backbone)).collect([files.paths[row] for row in chosen], broken="skip")
    np.savez(out, x=found.x, y=labels[chosen][found.rows])


def study(path: Path, draws: int, dual: bool = False) -> dict[str, dict[str, dict[str, float]]]:
    """Return mean accuracy in percent and calibration error, by images per class and method."""
    data = np.load(path)
    x, y = data["x"].astype(np.float64), data["y"]
    answers: dict[str, dict[str, list[tuple[Matrix, NDArray[np.int64]]]]] = {}
    labels, images = np.unique(y, return_counts=True)
    sizes = [n for n in SIZES if n + HELD_OUT <= images.min()]
    for draw in range(draws):
        random = np.random.default_rng(draw)
        classes = labels[random.permutation(len(labels))[:CLASSES]]
        pools = [random.permutation(np.flatnonzero(y == label)) for label in classes]
        test = np.concatenate([pool[-HELD_OUT:] for pool in pools])
        truth = np.repeat(np.arange(len(classes)), HELD_OUT)
        for n in sizes:
            learn, targets = np.concatenate([pool[:n] for pool in pools]), np.repeat(np.arange(len(classes)), n)
            if dual:
                found = {
                    "dsal": dual_form(x[learn], targets, x[test]),
                    "dsal, gamma 0.1": dual_form(x[learn], targets, x[test], gamma=0.1),
                }
            else:
                found = {
                    "dsal": one_lesson(x[learn], targets, x[test]),
                    "dsal, three lessons": three_lessons(x[learn], targets, x[test]),
                }
            found |= {
                "logistic regression": regression(x[learn], targets, x[test], n),
                "nearest mean": nearest_mean(x[learn], targets, x[test]),
            }
            for name, likely in found.items():
                answers.setdefault(str(n), {}).setdefault(name, []).append((likely, truth))
    return {n: {name: measure(some) for name, some in methods.items()} for n, methods in answers.items()}


def one_lesson(x: Matrix, y: NDArray[np.int64], test: Matrix) -> Matrix:
    return _likely(DSALClassifier(gamma=GAMMA).partial_fit(x, y), test)


def three_lessons(x: Matrix, y: NDArray[np.int64], test: Matrix) -> Matrix:
    model = DSALClassifier(gamma=GAMMA)
    for part in np.array_split(np.unique(y), 3):
        rows = np.isin(y, part)
        model.partial_fit(x[rows], y[rows])
    return _likely(model, test)


def dual_form(x: Matrix, y: NDArray[np.int64], test: Matrix, **options: Any) -> Matrix:
    """Return the same as :func:`one_lesson`: W = Phi^T A, A = (Phi Phi^T + gamma I)^-1 Y, n x n instead of d_B x d_B.

    All rows are left out in turn to fit the temperature; a model uses a sample if there are many rows.
    """
    model = DSALClassifier(**{"gamma": GAMMA, **options})
    random = expansions.get(model.expansion).build(x.shape[1], model.expansion_size, model.random_state, torch.empty(0))
    z, z_test = (random(torch.from_numpy(rows)) for rows in (x, test))
    left_over = np.eye(y.max() + 1)[y]
    logits, left_out = np.zeros((len(test), y.max() + 1)), np.zeros_like(left_over)
    changes = np.zeros((len(x), len(x)))  # of the residue of row i without row j, by the residue of row j
    for activation, strength in ((model.main_activation, 1.0), (model.activation, model.compensation)):
        phi, phi_test = (resolve(activation)(some).numpy() for some in (z, z_test))
        kernel = phi @ phi.T
        inverse = np.linalg.inv(kernel + model.gamma * np.eye(len(x)))
        weights, hat = inverse @ left_over, kernel @ inverse
        logits += strength * (phi_test @ phi.T @ weights)
        follows = ((hat * changes.T).sum(1) / (1 - hat.diagonal()))[:, None] * left_over
        left_out += strength * (left_over - weights / inverse.diagonal()[:, None] + follows)
        left_over = left_over - kernel @ weights
        changes = hat / (1 - hat.diagonal())
        np.fill_diagonal(changes, 0.0)
    ones = np.ones(len(y))
    corrected = as_new(left_out, y, np.bincount(y)[y].astype(float), ones, ones)
    temperature = Calibration().plus(corrected, y, ones, float(len(y))).temperature
    likely: Matrix = softmax(logits / temperature, axis=1)
    return likely


def _likely(model: DSALClassifier, test: Matrix) -> Matrix:
    likely: Matrix = model.predict_proba(test)[:, np.argsort(model.classes_)]
    return likely


def regression(x: Matrix, y: NDArray[np.int64], test: Matrix, n: int) -> Matrix:
    """Fit logistic regression in the row space of x, which gives the same result in less time."""
    basis = np.linalg.svd(x, full_matrices=False)[2].T
    model: Any = LogisticRegression(max_iter=300)
    if n > 1:
        folds = StratifiedKFold(min(n, 3), shuffle=True, random_state=0)
        model = GridSearchCV(model, {"C": 10.0 ** np.arange(-3, 3)}, cv=folds)
    likely: Matrix = model.fit(x @ basis, y).predict_proba(test @ basis)
    return likely


def nearest_mean(x: Matrix, y: NDArray[np.int64], test: Matrix) -> Matrix:
    """Return predictions with probability 1, since the nearest mean has no probabilities."""
    means = np.stack([x[y == label].mean(0) for label in np.unique(y)])
    distances = (means**2).sum(1) - 2 * test @ means.T
    return np.eye(len(means))[distances.argmin(1)]


def measure(answers: list[tuple[Matrix, NDArray[np.int64]]]) -> dict[str, float]:
    """Return accuracy in percent, calibration error, its floor, and mean score minus accuracy, of all draws together.

    The floor is the calibration error that perfect scores would have with so few predictions: the mean over 100
    simulations in which each answer is right with the probability that it claims.
    """
    best = np.concatenate([likely.max(1) for likely, _ in answers])
    right = np.concatenate([likely.argmax(1) == truth for likely, truth in answers])
    random = np.random.default_rng(0)
    floor = np.mean([calibration_error(best, random.random(len(best)) < best) for _ in range(100)])
    return {
        "accuracy": round(100 * float(right.mean()), 2),
        "calibration_error": round(calibration_error(best, right), 4),
        "calibration_floor": round(float(floor), 4),
        "overconfidence": round(float(best.mean() - right.mean()), 4),
    }


def calibration_error(best: Matrix, right: NDArray[np.bool_]) -> float:
    """Return the expected calibration error of scores (n,) of answers that are right or not (n,)."""
    bins = np.minimum((best * BINS).astype(int), BINS - 1)
    return float(
        sum(abs(best[bins == b].mean() - right[bins == b].mean()) * (bins == b).mean() for b in np.unique(bins))
    )


if __name__ == "__main__":
    with threadpool_limits(1):
        main()
