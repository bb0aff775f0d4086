"""The CapyMOA classifier with the real CapyMOA: `pip install 'dsal-learn[capymoa]'`, and Java."""

from __future__ import annotations

import shutil
from typing import Any

import numpy as np
import pytest
from tests.docs.pages import ROOT, python_blocks

from dsal import DSALClassifier

pytestmark = pytest.mark.slow
pytest.importorskip("jpype", reason="pip install 'dsal-learn[capymoa]' in an environment of its own")
if shutil.which("java") is None:
    pytest.skip("needs Java", allow_module_level=True)
pytest.importorskip("capymoa")


def test_tasks_of_batches_as_the_page_shows() -> None:
    """The loop of the page leaves the model of all rows at once."""
    shown: dict[str, Any] = {}
    exec("\n".join(python_blocks(ROOT / "docs/integrations/capymoa.md")), shown)
    x, y = shown["x"].numpy(), shown["y"].numpy()
    pooled = DSALClassifier(256, compensation=None).fit(x[:1200], y[:1200])
    learned = shown["learner"].classifier
    order = np.argsort(learned.classes_)
    np.testing.assert_allclose(learned.logits(x)[:, order], pooled.logits(x), atol=1e-8)
    right = [pooled.score(x[1200:][y[1200:] // 2 == task], y[1200:][y[1200:] // 2 == task]) for task in range(5)]
    assert shown["results"].accuracy_final == pytest.approx(np.mean(right))


def test_one_instance_after_the_other() -> None:
    """CapyMOA's prequential evaluation, with a class that appears late."""
    from capymoa.evaluation import prequential_evaluation
    from capymoa.stream import NumpyStream

    from dsal.integrations.capymoa import DSAL

    random = np.random.default_rng(0)
    y = np.r_[np.arange(200) % 2, np.arange(200) % 3]
    x = np.eye(3)[y] + 0.2 * random.standard_normal((400, 3))
    stream = NumpyStream(x, y, target_type="categorical")
    learner = DSAL(stream.get_schema(), DSALClassifier(64, compensation=None))
    assert learner.predict_proba(next(stream)).tolist() == [0.0, 0.0, 0.0]
    stream.restart()
    found = prequential_evaluation(stream, learner, batch_size=10)
    assert found.cumulative.accuracy() > 90
    assert sorted(learner.classifier.classes_.tolist()) == [0, 1, 2]
