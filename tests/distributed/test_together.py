"""What several processes learn together is what one learns alone."""

from pathlib import Path

import numpy as np
import pytest

from dsal.data.features.feature_set import FeatureSet
from dsal.distributed import ALONE, Team

from . import jobs
from .conftest import Answers


def test_phases(together: list[Answers], sample: FeatureSet) -> None:
    alone = jobs.phases(sample)
    for answers in together:
        for name in ("main", "both"):
            np.testing.assert_allclose(answers[name], alone[name], rtol=0, atol=1e-8)
            assert (answers[name].argmax(1) == alone[name].argmax(1)).all()


def test_fewer_rows_than_ranks_weights_and_what_is_left_to_the_model(
    together: list[Answers], sample: FeatureSet
) -> None:
    for name, expected in jobs.classifier(sample).items():
        for answers in together:
            np.testing.assert_allclose(answers[name], expected, rtol=1e-6, atol=1e-8, err_msg=name)


def test_features_of_images_are_the_same_bits(together: list[Answers], weights: Path, album: Path) -> None:
    alone = jobs.pictures(weights, album / "first")
    for answers in together:
        for name in ("train", "test", "usual", "accuracy"):
            np.testing.assert_array_equal(answers[name], alone[name], err_msg=name)
        np.testing.assert_allclose(answers["coefficients"], alone["coefficients"], rtol=0, atol=1e-8)


def test_only_the_triangle_is_summed(together: list[Answers]) -> None:
    total = sum(range(1, len(together) + 1))
    square = np.arange(49.0).reshape(7, 7)
    for name, before in (("rows", square), ("columns", square.T)):
        np.testing.assert_array_equal(np.triu(together[0][name]), np.triu(total * before))
        np.testing.assert_array_equal(np.tril(together[0][name], -1), np.tril(before, -1))


def test_bytes_are_those_of_the_arithmetic(together: list[Answers], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2]))
    from benchmarks.phase_cost import PhaseCost

    seen = [50, 60, 70, 80, 90, 100]
    runs = [
        PhaseCost(rows=1, size=256, classes=classes, present=50 if classes == 50 else 10, streams=streams)
        for streams in (1, 2)
        for classes in seen
    ]
    expected = [sum(phase.reduced_bytes for phase in runs), sum(phase.broadcast_bytes for phase in runs)]
    for answers in together:
        assert answers["bytes"].tolist() == expected


def test_shares_are_all_there_is_and_nothing_twice() -> None:
    for n, unit, size in ((10, 1, 3), (0, 1, 2), (2, 1, 5), (70, 16, 2), (5, 4, 3)):
        rows = [row for rank in range(size) for row in range(n)[Team(rank, size).share(n, unit)]]
        assert rows == list(range(n))
    assert ALONE.share(7) == slice(0, 7)
