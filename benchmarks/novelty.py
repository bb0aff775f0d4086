"""How well novelty separates images of unknown classes from held-out images of known ones: area under the ROC curve.

    python benchmarks/novelty.py [--proxy proxy.safetensors]

measures on the shipped features. The base half of the classes is taught in one phase; test images of that half are
known, those of the other half are new. The score itself was chosen on the proxy alone: a backbone that has seen classes
0-39 of CIFAR-100 is taught these classes, held-out training images of them are known, and all images of classes 40-49
are new (``benchmarks/proxy.py NAME --features proxy.safetensors``). Prints a table for docs/photo-results.md and writes
benchmarks/results/novelty.json.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import roc_auc_score

from dsal import DSALClassifier
from dsal.data import FeatureSet, load_features
from dsal.image_model.novelty import ClassStatistics
from dsal.image_model.novelty_reference import NoveltyReference
from dsal.image_model.outcomes import THRESHOLD

RESULTS = Path(__file__).parent / "results" / "novelty.json"
PROXY_BASE = 40
MOST_LEFT_OUT = 2000


@dataclass(frozen=True)
class Question:
    """Rows to teach, and known and new images to separate."""

    name: str
    kind: str  # of features
    x: NDArray[np.float32]
    y: NDArray[np.int64]
    known: NDArray[np.float32]
    new: NDArray[np.float32]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--proxy", type=Path, help="features of the proxy")
    parser.add_argument("--expansion-size", type=int, default=4096)
    parser.add_argument("--seeds", type=int, default=1, help="number of random expansions")
    arguments = parser.parse_args()
    rows = []
    print("| data | largest logit | distance | both | known flagged | new flagged |\n|---|---|---|---|---|---|")
    for question in questions(arguments.proxy):
        runs = [measure(question, arguments.expansion_size, seed) for seed in range(arguments.seeds)]
        mean = {name: float(np.mean([run[name] for run in runs])) for name in runs[0]}
        rows.append(
            {
                "data": question.name,
                "features": question.kind,
                "known": len(question.known),
                "new": len(question.new),
                **mean,
            }
        )
        shown = [f"{mean[name]:.3f}" for name in ("logit", "distance", "both")]
        shown += [f"{100 * mean[name]:.1f}%" for name in ("known_flagged", "new_flagged")]
        print(f"| {' | '.join([question.name, *shown])} |", flush=True)
    record = {"expansion_size": arguments.expansion_size, "seeds": arguments.seeds, "rows": rows}
    RESULTS.write_text(json.dumps(record, indent=1) + "\n")


def questions(proxy: Path | None) -> Iterator[Question]:
    if proxy is not None:
        data = load_features(str(proxy))
        yield ask("proxy", data, PROXY_BASE, also_training_images=True)
    for name in ("cifar100-features", "omniglot-features"):
        data = load_features(name)
        yield ask(name, data, len(data.backbone["seen_classes"]))


def ask(name: str, data: FeatureSet, base: int, *, also_training_images: bool = False) -> Question:
    """Teach the first ``base`` classes; images of the others, from the test part or from both, are new."""
    new = data.test_x[data.test_y >= base]
    if also_training_images:
        new = np.concatenate([new, data.train_x[data.train_y >= base]])
    taught = data.train_y < base
    return Question(name, data.kind, data.train_x[taught], data.train_y[taught], data.test_x[data.test_y < base], new)


def measure(question: Question, expansion_size: int, seed: int) -> dict[str, float]:
    """Learn as :meth:`dsal.image_model.ImageModel.learn` does, then measure the separation."""
    x, y = question.x, question.y
    head = DSALClassifier(expansion_size=expansion_size, compensation=0.0, random_state=seed).partial_fit(x, y)
    statistics = ClassStatistics.nothing(x.shape[1]).plus(x, y, int(y.max()) + 1)
    picked = np.random.default_rng(0).permutation(len(y))[:MOST_LEFT_OUT]
    left_out = head.loo_logits(x[picked], y[picked]).max(1)
    usual = NoveltyReference.nothing().plus(left_out, statistics.loo_distances(x[picked], y[picked]))
    logits, distances = (
        np.concatenate([value(question.known), value(question.new)])
        for value in (lambda rows: head.logits(rows).max(1), statistics.distances)
    )
    known = len(question.known)
    new = np.arange(len(logits)) >= known
    flagged = usual.novelty(logits, distances) > THRESHOLD
    return {
        "logit": float(roc_auc_score(new, -logits)),
        "distance": float(roc_auc_score(new, distances)),
        "both": float(roc_auc_score(new, usual.score(logits, distances))),
        "known_flagged": float(flagged[:known].mean()),
        "new_flagged": float(flagged[known:].mean()),
    }


if __name__ == "__main__":
    main()
