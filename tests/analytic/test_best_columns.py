"""Logits in blocks; predictions in float32 that are those of float64, also where two classes are as good as equal."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.oracle import Array
from torch import Tensor

from dsal.analytic import head as head_module
from dsal.analytic.activations import activations, resolve
from dsal.analytic.expansion import Expansion, GaussianKernel, Product, RandomProjection
from dsal.analytic.head import AnalyticHead, best_columns, logits
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
    monkeypatch.setattr(head_module, "_BLOCK_NUMBERS", 64 * 30)  # 30 rows at once
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
        with pytest.raises(InputError, match="expected features of shape"):
            answer(head, np.ones((400, 6)), Lapack())


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


def nearly_tied(size: int, classes: int, apart: float, seed: int = 0) -> Tensor:
    """Weights whose columns differ by ``apart``, relative to their size."""
    random = np.random.RandomState(seed)
    return torch.from_numpy(random.standard_normal((size, 1)) + apart * random.standard_normal((size, classes)))


def check_best(head: AnalyticHead, x: Array, backend: Backend | None = None) -> None:
    """Check the best columns against float64's scores, where float64 itself can tell them apart."""
    scores = logits(head, x, backend or Lapack())
    two = np.sort(scores, axis=1)[:, -2:]
    apart = two[:, 1] - two[:, 0] > 1e-13 * np.abs(scores).max(1) * len(head.main) ** 0.5
    np.testing.assert_array_equal(best_columns(head, x, backend or Lapack())[apart], scores.argmax(1)[apart])
    assert apart.any()


@pytest.mark.parametrize("compensated", [False, True])
def test_a_few_large_rows_among_many_small_ones(compensated: bool) -> None:
    """What float32 can tell apart depends on the row, not on the other rows of the batch, nor on 32 probes of it."""
    random = np.random.RandomState(1)
    x = 1e-2 * random.standard_normal((3270, 32))
    x[5::17] *= 1e6  # none where 32 probes would be
    weights = nearly_tied(256, 5, 1e-6)
    head = head_of(RandomProjection.build(32, 256, 0, torch.empty(0)), weights, weights if compensated else None)
    light = head.copied(torch.float32)(torch.from_numpy(x)).argmax(1).numpy()
    exact = logits(head, x, Lapack()).argmax(1)
    assert (light != exact)[5::17].sum() > 20
    check_best(head, x)
    together = best_columns(head, x, Lapack())
    for row in range(5, 3270, 170):
        assert best_columns(head, x[row : row + 1], Lapack())[0] == together[row]


SCALES = st.sampled_from([1e-45, 1e-39, 1e-25, 1e-16, 1e-8, 1e-3, 1.0, 30.0, 1e4, 1e9, 1e16, 1e25, 1e36, 1e38, 1e60])


@settings(max_examples=80, deadline=None)
@given(data=st.data())
def test_the_best_columns_are_those_of_float64_for_any_mixture_of_scales(data: st.DataObject) -> None:
    draw, seed = data.draw, data.draw(st.integers(0, 10**6))
    random, n, d_in, size = np.random.RandomState(seed), draw(st.integers(33, 300)), *draw(st.sampled_from(SIZES))
    x = random.standard_normal((n, d_in))
    if draw(st.booleans()):
        x = np.maximum(x, 0.0) + 0.1  # features of one sign, as a network's
    x *= random.choice(draw(st.lists(SCALES, min_size=1, max_size=4)), n)[:, None]
    if draw(st.booleans()):
        x *= random.choice(draw(st.lists(st.sampled_from([1.0, 1e-3, 1e3]), min_size=1, max_size=3)), d_in)
    expansion: Expansion = RandomProjection.build(d_in, size, seed, torch.empty(0))
    if draw(st.booleans()) and np.abs(x).max() < 1e20:
        expansion = GaussianKernel.build(d_in, size, seed, torch.from_numpy(random.standard_normal((size, d_in))))
    apart = st.sampled_from([1.0, 1e-2, 1e-4, 1e-6, 1e-7, 1e-9])
    main = nearly_tied(size, draw(st.integers(2, 6)), draw(apart), seed)
    comp = draw(st.sampled_from([None, main, nearly_tied(size, main.shape[1], draw(apart), seed + 1)]))
    head = AnalyticHead(
        expansion,
        main_activation=resolve(draw(st.sampled_from(activations.names()))),
        main=main * draw(st.sampled_from([1.0, 1e-20, 1e-8, 1e8])),
        activation=resolve(draw(st.sampled_from(["tanh", "sigmoid", "relu", "sine"]))),
        comp=comp,
        compensation=draw(st.sampled_from([0.0, 0.6, 100.0])),
        classes=[],
    )
    scores = logits(head, x, Lapack())
    two = np.sort(scores, axis=1)[:, -2:]
    apart_in_float64 = two[:, 1] - two[:, 0] > 1e-12 * sizes_of(head, x)
    best = best_columns(head, x, Lapack())
    np.testing.assert_array_equal(best[apart_in_float64], scores.argmax(1)[apart_in_float64])


SIZES = [(3, 8), (16, 40), (40, 16), (64, 300), (5, 1500)]


def sizes_of(head: AnalyticHead, x: Array) -> Array:
    """What float64's own rounding is relative to: the sizes of the terms of which a score is the sum (n,)."""
    rows = torch.from_numpy(x)
    z = head.expansion(rows)
    spread = rows.norm(dim=1) * head.expansion.projection.norm() + z.norm(dim=1) + len(head.main) ** 0.5
    weights = head.main.norm() + (0 if head.comp is None else head.compensation * head.comp.norm())
    return (spread * weights).numpy()


@pytest.mark.parametrize("compensated", [False, True])
def test_the_margin_is_the_bound_by_hand(compensated: bool) -> None:
    random = np.random.RandomState(0)
    projection, main, comp = random.standard_normal((6, 10)), *random.standard_normal((2, 10, 4))
    main, comp = main * [0.1, 0.5, 3.0, 1.0], comp * [2.0, 0.3, 0.1, 0.5]
    x = random.standard_normal((3, 6)) * [[1.0], [1e3], [0.0]]
    x[2, 0] = 1e-20
    head = AnalyticHead(
        RandomProjection(torch.from_numpy(projection)),
        main_activation=torch.sigmoid,  # 1/2 at 0, with a slope of 1/4
        main=torch.from_numpy(main),
        activation=resolve("hardswish"),  # 0 at 0, with a slope of 3/2
        comp=torch.from_numpy(comp) if compensated else None,
        compensation=0.7,
        classes=[],
    ).copied(torch.float32)
    rows = torch.from_numpy(x).float()
    margins = head_module.Margins(head)
    assert margins.usable
    found = margins.of(rows, head.expansion(rows)).numpy()
    w_main, w_comp = np.linalg.norm(main, axis=0).max(), 0.7 * np.linalg.norm(comp, axis=0).max() * compensated
    z = np.linalg.norm(x @ projection, axis=1)
    spread = np.sqrt(10) * z + np.linalg.norm(x, axis=1) * np.linalg.norm(projection)
    expected = 2 * 2.0**-24 * (w_main * (10 * 0.5 + 0.25 * spread) + w_comp * 1.5 * spread)
    np.testing.assert_allclose(found[:2], expected[:2], rtol=1e-5)
    assert np.isinf(found[2])  # its square is too small for float32


def test_one_class_needs_no_score() -> None:
    head = head_of(RandomProjection.build(5, 8, 0, torch.empty(0)), torch.ones(8, 1).double(), None)
    best = best_columns(head, np.ones((40, 5)), Lapack())
    assert (best.dtype, best.shape) == (np.int64, (40,))
    assert not best.any()


def test_what_has_no_bound_is_decided_in_float64(monkeypatch: pytest.MonkeyPatch) -> None:
    """An activation or expansion from elsewhere, and products that are not those of float32."""

    class Steep(RandomProjection):
        def forward(self, features: Tensor, product: Product = torch.matmul) -> Tensor:
            return 1e6 * super().forward(features, product)

        rounding = Expansion.rounding

    x, weights = np.random.RandomState(0).standard_normal((500, 8)), nearly_tied(64, 4, 1e-6)
    projection = RandomProjection.build(8, 64, 0, torch.empty(0)).projection
    check_best(head_of(Steep(projection), weights, None), x)
    head = head_of(RandomProjection(projection), weights, None)
    head.main_activation = lambda z: torch.sin(1e6 * z)
    check_best(head, x)
    products: list[torch.dtype] = []
    backend = Lapack()
    product = backend.product
    monkeypatch.setattr(backend, "product", lambda a, b: products.append(a.dtype) or product(a, b))
    monkeypatch.setattr(torch, "get_float32_matmul_precision", lambda: "medium")
    best_columns(head_of(RandomProjection(projection), nearly_tied(64, 4, 1.0), None), x, backend)
    assert products == [torch.float64] * 2


@pytest.mark.parametrize("scale", [1e30, 1e37, 1e39, 1e100])
def test_rows_beyond_float32_are_answered(scale: float, sample: FeatureSet) -> None:
    expansion = RandomProjection.build(sample.test_x.shape[1], 64, 0, torch.empty(0))
    head = head_of(expansion, nearly_tied(64, 7, 1.0), nearly_tied(64, 7, 1.0, seed=1))
    check_best(head, scale * sample.test_x[:100].astype(np.float64))


def test_few_rows_are_computed_twice(sample: FeatureSet, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where classes are well apart, hardly any row needs float64: that is what makes it fast."""
    expansion = RandomProjection.build(sample.test_x.shape[1], 256, 0, torch.empty(0))
    weights = torch.from_numpy(np.random.RandomState(0).standard_normal((256, 5)))
    backend, rows = Lapack(), []
    product = backend.product
    monkeypatch.setattr(backend, "product", lambda a, b: rows.append(len(a)) or product(a, b))
    best = best_columns(head_of(expansion, weights, None), sample.test_x, backend)
    np.testing.assert_array_equal(best, head_of(expansion, weights, None)(torch.from_numpy(sample.test_x)).argmax(1))
    assert sum(rows) <= 2 * 10  # of 1,000 rows; a product for the expansion and one for the scores
    rows.clear()
    few = best_columns(head_of(expansion, weights, None), sample.test_x[:10], backend)
    np.testing.assert_array_equal(few, best[:10])
    assert sum(rows) == 2 * 10  # a copy of the weights in float32 would not pay


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
