"""Logits in blocks; predictions in float32 that are those of float64, also where two classes are as good as equal."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from dsal.analytic import scoring
from dsal.analytic.expansion import Expansion, RandomProjection
from dsal.analytic.head import AnalyticHead
from dsal.analytic.scoring import best_columns, logits
from dsal.data.features.feature_set import FeatureSet
from dsal.errors import InputError
from dsal.linalg.backend import Backend, Lapack, Torch
from dsal.methods import METHODS


def head_of(expansion: Expansion, main: Tensor, comp: Tensor | None) -> AnalyticHead:
    return AnalyticHead(
        expansion,
        main_activation=torch.relu,
        main=main,
        activation=torch.tanh,
        comp=comp,
        compensation=0.5,
        classes=[],
    )


@pytest.mark.parametrize("backend", [Lapack(), Torch(torch.device("cpu"))], ids=["lapack", "torch"])
def test_logits_of_many_blocks(backend: Backend, sample: FeatureSet, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scoring, "_BLOCK_NUMBERS", 64 * 30)  # 30 rows at once
    expansion = RandomProjection.build(sample.test_x.shape[1], 64, 0, torch.empty(0))
    main, comp = np.random.RandomState(0).standard_normal((2, 64, 7))
    head = head_of(expansion, torch.from_numpy(main), torch.from_numpy(comp))
    x = sample.test_x[:100]
    z = x.astype(np.float64) @ expansion.projection.numpy()
    expected = np.maximum(z, 0) @ main + 0.5 * np.tanh(z) @ comp
    exact, light = logits(head, x, backend), logits(head, x, backend, torch.float32)
    assert exact.dtype == np.float64
    assert light.dtype == np.float32
    np.testing.assert_allclose(exact, expected, rtol=0, atol=1e-12)
    np.testing.assert_allclose(light, expected, rtol=0, atol=1e-4)
    assert (light != exact.astype(np.float32)).any()  # computed in float32, not only returned so
    assert head.main.dtype == torch.float64


def test_features_of_another_shape_are_refused() -> None:
    head = head_of(RandomProjection.build(5, 8, 0, torch.empty(0)), torch.ones(8, 3).double(), None)
    for answer in (logits, best_columns):
        assert len(answer(head, np.ones((4, 5)), Lapack())) == 4
        for shape in ((4, 6), (5, 4), (5,), (2, 5, 5)):
            with pytest.raises(InputError, match=r"expected features of shape \(n, 5\), got"):
                answer(head, np.ones(shape), Lapack())


def test_features_too_large_to_expand_are_refused() -> None:
    head = head_of(RandomProjection.build(5, 8, 0, torch.empty(0)), torch.ones(8, 3).double(), None)
    for answer in (logits, best_columns):
        with pytest.raises(InputError, match="the expanded features are not finite"):
            answer(head, np.full((4, 5), 1.7e308), Lapack())


@pytest.mark.parametrize("name", ["ds-al", "acil", "gkeal"])
def test_the_predictions_are_those_of_the_scores(name: str, sample: FeatureSet) -> None:
    method = METHODS.get(name)(expansion_size=512)
    for classes in (range(60), range(60, 100)):
        rows = np.flatnonzero(np.isin(sample.train_y, classes))
        method.learn_rows(sample.train_x[rows], sample.train_y[rows], classes)
    np.testing.assert_array_equal(method.predict(sample.test_x), method.scores(sample.test_x).argmax(1))
    assert method.predict(sample.test_x[:0]).shape == (0,)
    assert method.predict(sample.test_x[:1]).shape == (1,)


@pytest.mark.parametrize("backend", [Lapack(), Torch(torch.device("cpu"))], ids=["lapack", "torch"])
def test_what_float32_cannot_tell_apart_is_decided_in_float64(backend: Backend, sample: FeatureSet) -> None:
    """Two columns differ by less than float32 resolves: its argmax would be wrong for half of the rows."""
    expansion = RandomProjection.build(sample.test_x.shape[1], 256, 0, torch.empty(0))
    random = np.random.RandomState(0)
    column = random.standard_normal(256)
    weights = torch.from_numpy(np.stack([column, column + 1e-11 * random.standard_normal(256)], axis=1))
    z = sample.test_x.astype(np.float64) @ expansion.projection.numpy()
    scores = np.maximum(z, 0) @ weights.numpy() + 0.5 * np.tanh(z) @ weights.numpy()
    apart = np.abs(scores[:, 0] - scores[:, 1]) > 1e-12  # float64 can tell
    assert apart.mean() > 0.5
    best = best_columns(head_of(expansion, weights, weights), sample.test_x, backend)
    np.testing.assert_array_equal(best[apart], scores[apart].argmax(1))


def test_what_float32_tells_apart_wrongly_is_decided_in_float64(sample: FeatureSet) -> None:
    """Scores a few roundings apart: float32 has a best column, no tie, and often the wrong one."""
    expansion = RandomProjection.build(sample.test_x.shape[1], 256, 0, torch.empty(0))
    random = np.random.RandomState(0)
    column = random.standard_normal(256)
    weights = torch.from_numpy(np.stack([column, column + 3e-7 * random.standard_normal(256)], axis=1))
    head = head_of(expansion, weights, None)
    exact = head(torch.from_numpy(sample.test_x)).numpy()
    light = head.copied(torch.float32)(torch.from_numpy(sample.test_x)).numpy()
    wrong = (light.argmax(1) != exact.argmax(1)) & (light[:, 0] != light[:, 1])
    assert wrong.mean() > 0.05
    np.testing.assert_array_equal(best_columns(head, sample.test_x, Lapack()), exact.argmax(1))


def test_few_rows_are_computed_twice(sample: FeatureSet, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where classes are well apart, float64 is for the probes alone: that is what makes it fast."""
    expansion = RandomProjection.build(sample.test_x.shape[1], 256, 0, torch.empty(0))
    weights = torch.from_numpy(np.random.RandomState(0).standard_normal((256, 5)))
    backend, rows = Lapack(), []
    product = backend.product
    monkeypatch.setattr(backend, "product", lambda a, b: rows.append(len(a)) or product(a, b))
    best = best_columns(head_of(expansion, weights, None), sample.test_x, backend)
    np.testing.assert_array_equal(best, head_of(expansion, weights, None)(torch.from_numpy(sample.test_x)).argmax(1))
    assert 2 * 32 <= sum(rows) <= 2 * 40  # a product for the expansion and one for the scores
    rows.clear()
    few = best_columns(head_of(expansion, weights, None), sample.test_x[:10], backend)
    np.testing.assert_array_equal(few, best[:10])
    assert sum(rows) == 2 * 10  # all of them are probes


def test_of_equal_columns_the_first_is_the_best(sample: FeatureSet) -> None:
    """Whole numbers, so that float32 is exact and every score is a tie."""
    expansion = RandomProjection(torch.ones(3, 4, dtype=torch.float64))
    rows = np.arange(120, dtype=np.float32).reshape(40, 3)
    weights = torch.ones(4, 50, dtype=torch.float64)
    best = best_columns(head_of(expansion, weights, None), rows, Lapack())
    assert not best.any()
    assert best.dtype == np.int64


def test_one_class_is_always_the_best(sample: FeatureSet) -> None:
    expansion = RandomProjection.build(sample.test_x.shape[1], 8, 0, torch.empty(0))
    head = head_of(expansion, torch.ones(8, 1, dtype=torch.float64), None)
    assert not best_columns(head, sample.test_x[:5], Lapack()).any()
