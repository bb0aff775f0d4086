"""The river wrapper with the real river: `pip install 'dsal-learn[river]'`."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from sklearn.datasets import load_digits
from tests.docs.pages import ROOT, python_blocks

from dsal import DSALClassifier
from dsal.errors import InputError

PAGE = ROOT / "docs/integrations/river.md"
pytestmark = pytest.mark.slow
river = pytest.importorskip("river", reason="pip install 'dsal-learn[river]' in an environment of its own")
pd = pytest.importorskip("pandas")
X, Y = load_digits(return_X_y=True)
X, NAMES = X / 16, [f"p{i}" for i in range(64)]


def test_a_progressive_evaluation_as_the_page_shows() -> None:
    exec("\n".join(python_blocks(PAGE)), {})


def test_one_by_one_is_all_at_once() -> None:
    from dsal.integrations.river import RiverClassifier

    one, many = RiverClassifier(expansion_size=64), RiverClassifier(expansion_size=64)
    assert one.predict_one(dict.fromkeys(NAMES, 0.0)) is None
    for x, y in zip(X[:300], Y[:300], strict=True):  # labels appear as they come
        one.learn_one(dict(zip(NAMES, x, strict=True)), int(y))
    table = pd.DataFrame(X[:300], columns=NAMES)
    many.learn_many(table[:100], pd.Series(Y[:100]))
    many.learn_many(table[100:], pd.Series(Y[100:300]))
    pooled = DSALClassifier(64, compensation=None).fit(X[:300], Y[:300])
    for model in (one.model, many.model):
        order = np.argsort(model.classes_)
        np.testing.assert_allclose(model.logits(X)[:, order], pooled.logits(X), atol=1e-8)
    assert many.predict_many(table).tolist() == many.model.predict(X[:300]).tolist()
    assert one.predict_one(dict(zip(NAMES, X[0], strict=True))) == one.model.predict(X[:1])[0]


def test_it_is_a_river_estimator() -> None:
    from dsal.integrations.river import RiverClassifier

    model = RiverClassifier(expansion_size=32, gamma=0.5)
    model.learn_one({"a": 1.0, "b": 2.0}, "x")
    fresh = model.clone()
    assert (fresh.expansion_size, fresh.gamma, fresh.predict_one({"a": 1.0})) == (32, 0.5, None)
    again = pickle.loads(pickle.dumps(model))
    assert again.predict_proba_one({"b": 1.0}) == model.predict_proba_one({"b": 1.0})
    with pytest.raises(InputError, match="no features"):
        model.learn_one({"a": 1.0, "c": 2.0}, "x")
