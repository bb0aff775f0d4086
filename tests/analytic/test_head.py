"""The module for torch: the same logits, and fit to travel."""

from __future__ import annotations

import io

import numpy as np
import pytest
import torch
from tests.oracle import Rows

from dsal import AnalyticHead, DSALClassifier


@pytest.fixture(scope="module", params=["random", "gaussian"])
def model(request: pytest.FixtureRequest, rows: Rows) -> DSALClassifier:
    names = np.array([f"class {label}" for label in rows.y])
    return DSALClassifier(expansion_size=128, expansion=request.param).fit(rows.x, names)


def test_the_head_gives_the_logits_of_the_model(model: DSALClassifier, rows: Rows) -> None:
    x = torch.tensor(rows.new)
    head = model.to_torch()
    assert isinstance(head, AnalyticHead)
    assert head(x.float()).dtype == torch.float32
    assert np.abs(head(x.float()).numpy() - model.logits(rows.new)).max() < 1e-3
    np.testing.assert_allclose(model.to_torch(torch.float64)(x), model.logits(rows.new), atol=1e-12)
    best = head(x.float()).argmax(1)
    assert [head.classes[i] for i in best] == model.predict(rows.new).tolist()


def test_the_head_is_a_copy(model: DSALClassifier, rows: Rows) -> None:
    before = model.logits(rows.new)
    head = model.to_torch(torch.float64)
    head.main.zero_()
    head.expansion.projection.zero_()
    assert np.array_equal(model.logits(rows.new), before)
    assert model.projection_.dtype == np.float64


def test_the_compensation_in_force_travels_along(model: DSALClassifier, rows: Rows) -> None:
    head = model.to_torch(torch.float64)
    without = DSALClassifier(expansion_size=128, expansion=model.expansion, compensation=None)
    without.fit(rows.x, rows.y.astype(str))
    alone = without.to_torch()
    assert head.compensation == 0.6
    assert alone.comp is None
    assert set(alone.state_dict()) < set(head.state_dict())


@pytest.mark.filterwarnings("ignore:.torch.jit:DeprecationWarning")
def test_the_head_is_traced_and_exported(model: DSALClassifier, rows: Rows) -> None:
    x = torch.tensor(rows.new, dtype=torch.float32)
    head = model.to_torch().eval()
    expected = head(x)
    traced = torch.jit.trace(head, x[:2])
    torch.testing.assert_close(traced(x), expected)
    batch = torch.export.Dim("batch")
    exported = torch.export.export(head, (x[:7],), dynamic_shapes={"features": {0: batch}})
    torch.testing.assert_close(exported.module()(x), expected)


def test_the_head_keeps_gradients_and_its_state(model: DSALClassifier, rows: Rows) -> None:
    x = torch.tensor(rows.new[:5], dtype=torch.float32, requires_grad=True)
    head = model.to_torch()
    head(x).sum().backward()
    assert x.grad is not None
    assert x.grad.abs().sum() > 0
    file = io.BytesIO()
    torch.save(head.state_dict(), file)
    file.seek(0)
    other = model.to_torch()
    other.main.zero_()
    other.load_state_dict(torch.load(file, weights_only=True))
    torch.testing.assert_close(other(x), head(x))
