"""Ten more classes of 50 images for a model of 100 classes at d_B = 8192: overhead over the bare minimum.

    python benchmarks/own_images.py --images FOLDER

Two numbers, each the median of five rounds in which both sides take turns:

- the head: ``partial_fit`` of 500 rows against the necessary BLAS and LAPACK calls alone, on matrices of the same
  shapes (one product for the expansion; for each stream one update of the triangular factor, the product with the
  targets and two triangular solves; the residue). The goal is at most 1.3 times their time.
- reading: image files to features against bare ONNX Runtime on the same images, decoded beforehand (the goal is at
  least 0.9 times its speed), and against PyTorch (at least 2.5 times its speed). Any folder of photographs will do.

Needs 4 GB of memory and an idle machine. Use ``--expansion-size 1024`` for a quick try.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from unittest.mock import patch

import numpy as np
import onnxruntime
import torch
from numpy.typing import NDArray
from scipy.linalg import blas, lapack

from dsal import DSALClassifier
from dsal.backbones.pretrained import DEFAULT, open_backbone
from dsal.data.images.decode import decode_batches
from dsal.data.images.labelled_files import find_images
from dsal.image_model.graph_features import WORTH_CONVERTING, cached_path, graph_of
from dsal.image_model.image_features import BackboneFeatures

CLASSES, NEW, IMAGES, WIDTH, BLOCK, ROUNDS = 100, 10, 50, 1280, 32, 5


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=Path, help="folder of photographs; without one only the head is measured")
    parser.add_argument("--most", type=int, default=200, help="how many of them to read")
    parser.add_argument("--backbone", default=DEFAULT)
    parser.add_argument("--expansion-size", type=int, default=8192)
    parser.add_argument("--reading-only", action="store_true")
    arguments = parser.parse_args()
    result: dict[str, object] = {"threads": torch.get_num_threads(), "load": os.getloadavg()[0]}
    if not arguments.reading_only:
        result["head"] = report(head(arguments.expansion_size))
    if arguments.images:
        paths = find_images([arguments.images])[: arguments.most]
        rounds = np.array(list(reading(paths, arguments.backbone)))
        result["reading"] = {
            "images": len(paths),
            "seconds": dict(zip(("dsal", "bare runtime", "PyTorch"), np.median(rounds, axis=0).tolist(), strict=True)),
            "speed_of_bare_runtime": float(np.median(rounds[:, 1] / rounds[:, 0])),
            "times_pytorch": float(np.median(rounds[:, 2] / rounds[:, 0])),
        }
    print(json.dumps(result, indent=1))


def report(rounds: Iterator[tuple[float, float]]) -> dict[str, float]:
    """Return medians over the rounds: seconds, lower bound of the seconds, and their ratio."""
    pairs = np.array(list(rounds))
    seconds, least = np.median(pairs, axis=0)
    ratio = float(np.median(pairs[:, 0] / pairs[:, 1]))
    return {"seconds": float(seconds), "least": float(least), "times_the_least": ratio, "speed": 1 / ratio}


def head(size: int) -> Iterator[tuple[float, float]]:
    """Learn phases of ten classes, one after the other."""
    random = np.random.default_rng(0)
    model = DSALClassifier(expansion_size=size)

    def lesson(first: int, classes: int) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        return random.standard_normal((classes * IMAGES, WIDTH), np.float32), np.repeat(
            first + np.arange(classes), IMAGES
        )

    model.partial_fit(*lesson(0, CLASSES))
    floor = Floor(size, NEW * IMAGES)
    for number in range(ROUNDS):
        x, y = lesson(CLASSES + number * NEW, NEW)
        yield seconds(lambda x=x, y=y: model.partial_fit(x, y).logits(x[:1])), seconds(floor.phase)


class Floor:
    """Make the calls of one phase, on matrices of the same shapes."""

    def __init__(self, size: int, rows: int) -> None:
        random = np.random.default_rng(0)
        classes = CLASSES + NEW

        def matrix(*shape: int) -> NDArray[np.float64]:
            return np.asfortranarray(random.standard_normal(shape))

        self.features, self.projection = matrix(rows, WIDTH), matrix(WIDTH, size)
        self.factor = np.asfortranarray(np.triu(matrix(size, size)) / size + 9 * np.eye(size))
        self.rows, self.targets = matrix(rows, size), matrix(rows, NEW)
        self.sums, self.weights = matrix(size, classes), matrix(size, classes)

    def phase(self) -> None:
        blas.dgemm(1.0, self.features, self.projection)
        for _ in ("main", "compensation"):
            lapack.dtpqrt(0, BLOCK, self.factor, self.rows, overwrite_a=True, overwrite_b=False)
            blas.dgemm(1.0, self.rows, self.targets, trans_a=True)
            half = blas.dtrsm(1.0, self.factor, self.sums, trans_a=True)
            blas.dtrsm(1.0, self.factor, half, overwrite_b=True)
        blas.dgemm(1.0, self.rows, self.weights)


def reading(paths: tuple[Path, ...], name: str) -> Iterator[tuple[float, float, float]]:
    """Time files to features; then the bare runtime on decoded images, on all cores; then PyTorch."""
    backbone = open_backbone(name)
    graph = graph_of(backbone, WORTH_CONVERTING)
    if graph is None:
        raise SystemExit("this backbone does not run in ONNX Runtime here: pip install 'dsal-learn[lite]'")
    decoded = list(decode_batches(paths, backbone.card.size, batch_size=8))
    bare = onnxruntime.InferenceSession(str(cached_path(backbone.fingerprint())), providers=["CPUExecutionProvider"])
    bare.run(["features"], {"images": decoded[0]})  # warm up
    BackboneFeatures(backbone).collect(paths[:16])

    def in_pytorch() -> None:
        with patch.dict(os.environ, {"DSAL_ONNX": "0"}):
            BackboneFeatures(backbone).collect(paths)

    for _ in range(ROUNDS):
        yield (
            seconds(lambda: BackboneFeatures(backbone).collect(paths)),
            seconds(lambda: [bare.run(["features"], {"images": images}) for images in decoded]),
            seconds(in_pytorch),
        )


def seconds(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


if __name__ == "__main__":
    main()
