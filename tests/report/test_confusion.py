"""What the page draws, against the counts on disk."""

import base64
import zlib
from pathlib import Path

import numpy as np

from dsal.protocol import metrics
from dsal.report.confusion_chart import PAIRS, SIDE, confusion_of
from dsal.report.run_pages import read_runs


def test_small_matrices_are_the_counts_themselves(runs: dict[str, Path]) -> None:
    run = read_runs([runs["ds-al"]])[0]
    confusion = confusion_of(run)
    assert confusion is not None
    assert confusion.group == 1
    assert confusion.phases == tuple(range(26))
    with np.load(runs["ds-al"] / "confusion.npz") as file:
        for phase, matrix in zip(confusion.phases, confusion.matrices, strict=True):
            np.testing.assert_array_equal(matrix, file[f"seed0_phase{phase}"] + file[f"seed1_phase{phase}"])
    # equally many test images for each seed: the accuracy of the sum is the mean of the accuracies
    np.testing.assert_allclose(metrics.accuracy(confusion.matrices[-1]), run.last.mean)


def test_large_matrices_are_sums_of_blocks(omniglot_run: Path) -> None:
    run = read_runs([omniglot_run])[0]
    confusion = confusion_of(run)
    assert confusion is not None
    with np.load(omniglot_run / "confusion.npz") as file:
        counts = file["seed0_phase10"]
    merged, group = confusion.matrices[-1], confusion.group
    assert len(merged) <= SIDE
    assert merged.sum() == counts.sum() == 5 * 1623
    for i, j in ((0, 0), (3, 70), (124, 124)):
        assert merged[i, j] == counts[i * group : (i + 1) * group, j * group : (j + 1) * group].sum()


def test_pairs_are_the_largest_mistakes_class_by_class(omniglot_run: Path) -> None:
    confusion = confusion_of(read_runs([omniglot_run])[0])
    assert confusion is not None
    with np.load(omniglot_run / "confusion.npz") as file:
        counts = file["seed0_phase10"]
    pairs = confusion.pairs[-1]
    assert [pair.count for pair in pairs] == sorted(counts[~np.eye(len(counts), dtype=bool)])[::-1][:PAIRS]
    assert all(counts[pair.true, pair.predicted] == pair.count for pair in pairs)
    assert all(pair.true != pair.predicted and pair.total == 5 for pair in pairs)


def test_packing_gives_the_counts_back(runs: dict[str, Path]) -> None:
    confusion = confusion_of(read_runs([runs["k5"]])[0])
    assert confusion is not None
    packed, width = confusion.packed()
    flat = np.frombuffer(zlib.decompress(base64.b64decode(packed)), dtype=f"<u{width}")
    np.testing.assert_array_equal(flat, np.concatenate([matrix.ravel() for matrix in confusion.matrices]))
