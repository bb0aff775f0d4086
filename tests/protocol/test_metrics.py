"""Metrics against their definitions, computed sample by sample."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsal.protocol import metrics
from dsal.protocol.metrics import ConfusionCounts

GROUPS = (range(0, 3), range(3, 4), range(4, 6))


def predictions(seed: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """(true, predicted) after each phase of GROUPS; every class seen has test samples."""
    random = np.random.default_rng(seed)
    pairs = []
    for group in GROUPS:
        true = np.concatenate([np.arange(group.stop), random.integers(0, group.stop, 40)])
        guess = random.integers(0, group.stop, len(true))
        pairs.append((true, np.where(random.random(len(true)) < 0.5, true, guess)))
    return pairs


def share(pair: tuple[np.ndarray, np.ndarray], classes: range) -> float:
    hits = [t == p for t, p in zip(*pair, strict=True) if t in classes]
    return 100 * sum(hits) / len(hits)


@given(st.integers(0, 2**32 - 1))
def test_all_metrics_follow_their_definitions(seed: int) -> None:
    pairs = predictions(seed)
    counts = [metrics.confusion_counts(*pair, group.stop) for pair, group in zip(pairs, GROUPS, strict=True)]
    a = {(k, j): share(pairs[k], GROUPS[j]) for k in range(3) for j in range(k + 1)}
    overall = [share(pair, range(group.stop)) for pair, group in zip(pairs, GROUPS, strict=True)]
    tallies = [metrics.Tally.of(c) for c in counts]
    for metric in (metrics.forgetting, metrics.backward_transfer):
        assert metric(tallies, GROUPS) == metric(counts, GROUPS)
    for dense in counts:
        np.testing.assert_array_equal(ConfusionCounts.of(dense).dense(), dense)
    assert metrics.average_accuracy(counts) == pytest.approx(sum(overall) / 3)
    assert metrics.accuracy(counts[2]) == pytest.approx(overall[2])
    assert metrics.accuracy(counts[2], GROUPS[0]) == pytest.approx(a[2, 0])
    assert metrics.new_accuracy(counts[2], GROUPS[0]) == pytest.approx(share(pairs[2], range(3, 6)))
    assert metrics.forgetting(counts, GROUPS) == pytest.approx(
        ((max(a[0, 0], a[1, 0]) - a[2, 0]) + (a[1, 1] - a[2, 1])) / 2
    )
    assert metrics.backward_transfer(counts, GROUPS) == pytest.approx(((a[2, 0] - a[0, 0]) + (a[2, 1] - a[1, 1])) / 2)


def test_a_class_that_is_never_predicted_has_its_column() -> None:
    counts = metrics.confusion_counts(np.array([0, 2, 2]), np.array([0, 0, 1]), 4)
    assert counts.tolist() == [[1, 0, 0, 0], [0, 0, 0, 0], [1, 1, 0, 0], [0, 0, 0, 0]]


def test_what_does_not_exist_is_none() -> None:
    counts = [np.eye(3, dtype=np.int32)]
    assert metrics.new_accuracy(counts[0], range(3)) is None
    assert metrics.forgetting(counts, [range(3)]) is None
    assert metrics.backward_transfer(counts, [range(3)]) is None
