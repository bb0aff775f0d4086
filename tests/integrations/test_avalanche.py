"""The Avalanche strategy with the real Avalanche: `pip install 'dsal-learn[avalanche]'`."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.docs.pages import ROOT, python_blocks

from dsal import DSALClassifier

pytestmark = pytest.mark.slow
pytest.importorskip("avalanche", reason="pip install 'dsal-learn[avalanche]' in an environment of its own")


def test_a_stream_of_experiences_is_a_run_of_phases() -> None:
    """What docs/integrations/avalanche.md shows equals phases learned directly."""
    shown: dict[str, Any] = {}
    exec("\n".join(python_blocks(ROOT / "docs/integrations/avalanche.md")), shown)
    x, y = shown["x"].numpy(), shown["y"]
    alone = DSALClassifier(expansion_size=256)
    for experience in shown["benchmark"].train_stream:
        rows = np.isin(y[:1200], experience.classes_in_this_experience)
        alone.partial_fit(x[:1200][rows], y[:1200][rows])
    np.testing.assert_allclose(shown["strategy"].classifier.logits(x), alone.logits(x), atol=1e-8)
    (measured,) = [value for name, value in shown["results"].items() if "Top1_Acc_Stream" in name]
    assert measured == pytest.approx(alone.score(x[1200:], y[1200:]))
    assert measured > 0.9
