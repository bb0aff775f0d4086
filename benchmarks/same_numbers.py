"""Whether two versions of dsal compute the same numbers: record those of each, then compare bit for bit.

    PYTHONPATH=OLD/src python benchmarks/same_numbers.py record old.json
    PYTHONPATH=NEW/src python benchmarks/same_numbers.py record new.json
    python benchmarks/same_numbers.py compare old.json new.json

For redesigns that are to change no number. Only the command line and the public names of the package are used, so the
modules behind them may move. Arrays are recorded as hashes, other numbers as they are; times, memory and provenance are
left out. ``--only NAME`` records some cases; ``--full`` adds those of many minutes. Both versions must run on one
machine, with the same number of BLAS threads.

The arrangement in rooms (0.3.0) against the commit before it, 9725300, on an AMD EPYC, one BLAS thread. Compared at
1b006fa, all equal: ``--paper --phases 5`` on all rows at d_B 2048 (288 numbers), the run on omniglot (3,554), the
comparison of all methods on features, tuned (1,520), what these methods learn in three phases (393). Of the classifier
(42) all but calibration and probabilities, which bb9490e changed: at the commit before that one all 42 equal the old
ones, and at bb9490e today's. Of a model from folders 414 of 420 arrays; the others are that calibration and the
reference of novelty, changed on purpose; labels are equal. Compared earlier: the default run (508, equal) and one phase
of the network methods, 13 of 21 equal. The other eight were changed on purpose, see CHANGELOG.md. At its own d_B 8192,
``--paper --phases 5`` was compared on every tenth row only (288, equal).
"""

from __future__ import annotations

import argparse
import hashlib
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from inspect import signature
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from PIL import Image
from safetensors import safe_open
from sklearn.datasets import load_sample_images

from dsal import METHODS, DSALClassifier
from dsal.backbones import Backbone, Card, save_backbone
from dsal.data import FeatureRows, ImageData, Scenario, load_dataset, load_features
from dsal.methods import Method, Phase

UNEQUAL = ("seconds", "bytes", "provenance", "started", "config", "schema", "version", "time", "memory", "created")
"""Parts of the names of results that may differ between equal runs."""
SMALL = {"expansion_size": 128, "batch_size": 32, "device": "cpu", "precision": "float32", "samples_per_class": 4}

Record = dict[str, Any]


def digest(array: Any) -> str:
    """Return a hash of type, shape and bytes of an array."""
    array = np.ascontiguousarray(array)
    return f"{array.dtype}{array.shape} {hashlib.sha256(array.tobytes()).hexdigest()[:16]}"


def leaves(value: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the numbers and texts inside a JSON value, each with its path; none that equal runs may not share."""
    if isinstance(value, dict | list):
        for key, item in value.items() if isinstance(value, dict) else enumerate(value):
            if not any(part in str(key) for part in UNEQUAL):
                yield from leaves(item, f"{name}/{key}")
    else:
        yield name, value


def dsal(*arguments: object) -> str:
    """Run a command and return what it prints."""
    done = subprocess.run([sys.executable, "-m", "dsal", *map(str, arguments)], check=True, capture_output=True)
    return done.stdout.decode()


def run(*options: object) -> Record:
    """Return the results of `dsal run`."""
    with TemporaryDirectory() as folder:
        dsal("run", *options, "--no-report", "--out", f"{folder}/run")
        return dict(leaves(json.loads(Path(folder, "run", "results.json").read_text(encoding="utf-8"))))


def compare_methods() -> Record:
    """Return the results of `dsal compare` of all methods on features, tuned, on some rows of twenty classes."""
    train, test = rows()
    with TemporaryDirectory() as folder:
        file = f"{folder}/rows.npz"
        np.savez(file, train_x=train.x, train_y=train.labels, test_x=test.x, test_y=test.labels)
        options = ("--expansion-size", 128, "--phases", 2, "--no-report")
        dsal("compare", "--dataset", file, *options, "--out", f"{folder}/out")
        found: Record = {}
        for path in sorted(Path(folder, "out").rglob("results.json")):
            place = path.parent.relative_to(folder)
            found |= leaves(json.loads(path.read_text(encoding="utf-8")), str(place))
        return found


def network(channels: int, outputs: int) -> Backbone:
    """Return an untrained ResNet-32, with a head if it is to have outputs."""
    card = Card(
        architecture="resnet32",
        dataset="omniglot" if outputs else None,
        seen_classes=tuple(range(outputs)) if outputs else None,
        class_order="natural",
        in_channels=channels,
        size=28 if outputs else 32,
        mean=(0.5,) * channels,
        std=(0.3,) * channels,
    )
    torch.manual_seed(1)
    return Backbone(card, head=torch.nn.Linear(64, outputs) if outputs else None).eval()


def taught_phases(name: str, train: Any, test: Any, classes: int) -> Record:
    """Return state and scores of a small method after each of three phases, the first with half of the classes."""
    cls: type[Method] = METHODS.get(name)
    known = signature(cls).parameters
    method = cls(
        **{key: value for key, value in SMALL.items() if key in known}, **{k: 1 for k in known if "epochs" in k}
    )
    if cls.inputs == "images":
        method.start(network(channels=1, outputs=classes // 2))
    found: Record = {}
    for k, group in enumerate(Scenario.deal(classes, phases=2).phases):
        rows = torch.nonzero(torch.isin(train.labels, torch.tensor(list(group)))).flatten()
        for _ in method.learn(Phase(k, group, train.take(rows))):
            pass
        state = method.state()
        found |= {f"{k}/{key}": digest(array) for key, array in state.arrays.items()}
        found |= leaves(json.loads(json.dumps(state.facts)), f"{k}/facts")
        found[f"{k}/scores"] = digest(method.scores(test))
    return found


def characters() -> tuple[ImageData, ImageData]:
    """Return eight handwritten characters of different alphabets: training and test images."""
    data = load_dataset("omniglot")
    parts = []
    for part in (data.train, data.test):
        some = part.take(torch.nonzero((part.labels % 97 == 0) & (part.labels < 8 * 97)).flatten())
        parts.append(ImageData(some.images, some.labels // 97))
    return parts[0], parts[1]


def rows() -> tuple[FeatureRows, FeatureRows]:
    """Return the features of twenty classes of CIFAR-100: training and test rows."""
    data = load_features("cifar100-features", "last")
    return tuple(  # type: ignore[return-value]
        FeatureRows(np.asarray(x[y < 20][::5]), torch.from_numpy(np.asarray(y[y < 20][::5]).astype(np.int64)))
        for x, y in ((data.train_x, data.train_y), (data.test_x, data.test_y))
    )


def methods(inputs: str) -> Record:
    """Return what every method on features, or on images, learns in three small phases."""
    train, test = characters() if inputs == "images" else rows()
    names = [name for name in METHODS.names() if METHODS.get(name).inputs == inputs]
    return {
        f"{name}/{key}": value
        for name in names
        for key, value in taught_phases(name, train, test, int(train.labels.max()) + 1).items()
    }


def classifier() -> Record:
    """Return the arrays and answers of classifiers that learn phase by phase, merge and relearn."""
    train, test = rows()
    x, y, found = np.asarray(train.x), train.labels.numpy(), {}
    variants: dict[str, dict[str, Any]] = {
        "default": {},
        "gaussian": {"expansion": "gaussian"},
        "automatic": {"gamma": "auto", "compensation": "auto"},
        "one stream": {"compensation": None},
    }
    for name, options in variants.items():
        model = DSALClassifier(expansion_size=256, random_state=0, **options)
        for group in np.split(np.argsort(y, kind="stable"), [600, 1200, 1205]):
            model.partial_fit(x[group], y[group])
        found |= {f"{name}/{key}": value for key, value in saved(model).items()}
        found[f"{name}/proba"] = digest(model.predict_proba(test.x))
        found[f"{name}/predict"] = digest(model.predict(test.x))
    return found


def saved(model: Any) -> Record:
    """Return hashes of all arrays in the file of a model."""
    with TemporaryDirectory() as folder:
        path = Path(folder, "model")
        model.save(path)
        return arrays_of(path)


def arrays_of(path: Path) -> Record:
    """Return hashes of all arrays in a file."""
    with safe_open(path, "numpy") as file:
        return {key: digest(file.get_tensor(key)) for key in file.keys()}  # noqa: SIM118 (safetensors is no mapping)


def images() -> Record:
    """Return the arrays of a model taught from two folders of photographs, and its answers for one of them."""
    with TemporaryDirectory() as folder:
        root, model = Path(folder), Path(folder, "model.dsal")
        for photo, pixels in zip(("china", "flower"), load_sample_images().images, strict=True):
            for half in range(2):
                place = root / f"lesson{half}" / f"{photo}-{half}"
                place.mkdir(parents=True)
                for number in range(12):
                    left, upper = 90 * (number % 6), 213 * half + 60 * (number // 6)
                    Image.fromarray(pixels[upper : upper + 80, left : left + 90]).save(place / f"{number}.png")
        weights = root / "weights.safetensors"
        save_backbone(weights, network(channels=3, outputs=0))
        found: Record = {}
        for half in range(2):
            options = ("--backbone", weights, "--expansion-size", 256) if half == 0 else ()
            dsal("learn", root / f"lesson{half}", "--model", model, *options)
            found |= {f"lesson {half}/{key}": value for key, value in arrays_of(model).items()}
        answers = json.loads(dsal("predict", model, root / "lesson0", "--json").replace(folder, ""))
        return found | dict(leaves(answers, "predict"))


CASES: dict[str, Callable[[], Record]] = {
    "classifier": classifier,
    "images": images,
    "methods on features": lambda: methods("features"),
    "methods on images": lambda: methods("images"),
    "run": lambda: run(),
    "run as the paper, d_B 2048": lambda: run("--paper", "--phases", 5, "--expansion-size", 2048),
    "run on omniglot": lambda: run("--dataset", "omniglot-features"),
    "compare": compare_methods,
}
FULL: dict[str, Callable[[], Record]] = {"run as the paper": lambda: run("--paper", "--phases", 5)}


def differences(old: Record, new: Record) -> Iterator[str]:
    """Yield a line per number that differs, or that only one side has."""
    for case in sorted(old.keys() & new.keys()):
        for name in sorted(old[case].keys() | new[case].keys()):
            a, b = old[case].get(name, "(none)"), new[case].get(name, "(none)")
            if a != b:
                yield f"{case}: {name}: {a} -> {b}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("record", "compare"))
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--only", action="append", help="name of a case; repeat it for several")
    parser.add_argument("--full", action="store_true", help="also the cases that take many minutes")
    asked = parser.parse_args()
    if asked.what == "compare":
        old, new = (json.loads(path.read_text(encoding="utf-8")) for path in asked.files)
        lines = list(differences(old, new))
        shared = [case for case in old if case in new]
        count = sum(len(old[case]) for case in shared)
        print("\n".join(lines) or f"equal: {count} numbers and arrays of {', '.join(shared)}")
        sys.exit(bool(lines))
    out = asked.files[0]
    cases = CASES | (FULL if asked.full else {})
    found = json.loads(out.read_text(encoding="utf-8")) if out.exists() else {}
    for name in asked.only or cases:
        found[name] = (CASES | FULL)[name]()
        print(f"{name}: {len(found[name])} numbers and arrays", file=sys.stderr)
        out.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
