"""False unknowns and area under the ROC curve, however the classes of a folder arrived.

    python benchmarks/novelty_arrivals.py FEATURES_FOLDER [--draws 10] [--known 5] [--only NAME ...]

FEATURES_FOLDER holds one ``NAME.npz`` for each folder of images: ``x`` (n, d), features of the default backbone, and
``y`` (n,), the class numbers. In every draw some classes are known and the others, which look alike, are not; 20 images
of each known class are taught in one phase, in five, one class a phase, or to two models that are then merged. The
rest of the known images, and all images of the other classes, are asked about. Images of the next folder are far
unknowns. "Before" is the reference of earlier versions: the scores that were measured when a class was taught, added
up. Writes benchmarks/results/novelty-arrivals.json.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import roc_auc_score

from dsal import DSALClassifier
from dsal.image_model.learned_state import LearnedState
from dsal.image_model.novelty_reference import NoveltyReference
from dsal.image_model.outcomes import THRESHOLD

RESULTS = Path(__file__).parent / "results" / "novelty-arrivals.json"
ARRIVALS = ("one phase", "five phases", "one class a phase", "merged")
IMAGES = 20
Rows = NDArray[np.float32]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("features", type=Path)
    parser.add_argument("--draws", type=int, default=10)
    parser.add_argument("--known", type=int, default=5)
    parser.add_argument("--expansion-size", type=int, default=1024)
    parser.add_argument("--only", nargs="*", help="names of folders")
    parser.add_argument("--results", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    names = arguments.only or sorted(path.stem for path in arguments.features.glob("*.npz"))
    stored = {name: np.load(arguments.features / f"{name}.npz") for name in names}
    folders = {name: (data["x"], data["y"]) for name, data in stored.items()}
    record: dict[str, Any] = {
        "images": IMAGES,
        "draws": arguments.draws,
        "expansion_size": arguments.expansion_size,
        "folders": {},
    }
    for name, far in zip(names, [*names[1:], names[0]], strict=True):
        known = min(arguments.known, int(folders[name][1].max()))
        runs: list[dict[str, float]] = []
        for draw in range(arguments.draws):
            runs.append(measure(folders[name], folders[far][0], known, draw, arguments.expansion_size))
            found = {key: round(float(np.mean([run[key] for run in runs])), 4) for key in runs[0]}
            record["folders"][name] = {"known_classes": known, "far": far, "draws": len(runs), **found}
            arguments.results.write_text(json.dumps(record, indent=1) + "\n")
        print(name, found, flush=True)


def measure(folder: tuple[Rows, NDArray[np.int64]], far: Rows, known: int, draw: int, size: int) -> dict[str, float]:
    """Return rates and areas of one draw."""
    x, y = folder
    random = np.random.default_rng(draw)
    classes = random.permutation(int(y.max()) + 1)
    order = [random.permutation(np.flatnonzero(y == c)) for c in classes[:known]]
    taught = [x[rows[:IMAGES]] for rows in order]
    asked = np.concatenate([x[rows[IMAGES:]] for rows in order])
    alike = x[np.isin(y, classes[known:])]
    far = far[random.permutation(len(far))[:200]]
    found: dict[str, float] = {}
    for arrival in ARRIVALS:
        state, before = arrive(taught, arrival, size)
        main = state._main_stream()
        signs = [(main.logits(rows).max(1), state.statistics.distances(rows)) for rows in (asked, alike, far)]
        shares = [state.reference.novelty(*sign) for sign in signs]
        found[f"{arrival}: known flagged"] = float((shares[0] > THRESHOLD).mean())
        if arrival != "merged":  # earlier versions estimated it in another way
            found[f"{arrival}: known flagged before"] = float((before.novelty(*signs[0]) > THRESHOLD).mean())
        found[f"{arrival}: alike flagged"] = float((shares[1] > THRESHOLD).mean())
        for name, at in (("alike", 1), ("far", 2)):
            truth = np.repeat([0, 1], [len(asked), len(signs[at][0])])
            scores = [state.reference.score(*signs[which]) for which in (0, at)]
            found[f"{arrival}: area, {name}"] = float(roc_auc_score(truth, np.concatenate(scores)))
    return found


def arrive(taught: list[Rows], arrival: str, size: int) -> tuple[LearnedState, NoveltyReference]:
    """Teach the classes; return the model, and the sum of what was measured in every lesson."""
    numbers = np.arange(len(taught))
    groups = {"one phase": [numbers], "one class a phase": np.array_split(numbers, len(numbers))}
    lessons = groups.get(arrival, np.array_split(numbers, 2 if arrival == "merged" else min(5, len(numbers))))
    states: list[LearnedState] = []
    before = NoveltyReference.nothing()
    for lesson in lessons:
        if not states or arrival == "merged":
            states.append(LearnedState(DSALClassifier(size, 100.0, random_state=0), taught[0].shape[1]))
        rows = np.concatenate([taught[c] for c in lesson])
        labels = np.repeat([f"{c:02}" for c in lesson], IMAGES)
        states[-1].learn(rows, labels, [None] * len(rows))
        main, columns = states[-1]._main_stream(), np.searchsorted(states[-1].classes, labels)
        before = before.plus(main.loo_logits(rows, labels).max(1), states[-1].statistics.loo_distances(rows, columns))
    for other in states[1:]:
        states[0].merge(other)
    return states[0], before


if __name__ == "__main__":
    main()
