"""The short cut of the study of few images gives the model's own answers."""

import numpy as np

from dsal import DSALClassifier
from dsal.image_model.model import GAMMA


def test_the_dual_form_is_the_model() -> None:
    from benchmarks.few_images import _likely, dual_form

    random = np.random.default_rng(0)
    y = np.repeat(np.arange(4), 6)
    x, test = random.standard_normal((24, 10)) + y[:, None], random.standard_normal((9, 10)) + 1
    model = DSALClassifier(expansion_size=64, gamma=GAMMA).partial_fit(x, y)
    np.testing.assert_allclose(dual_form(x, y, test, expansion_size=64), _likely(model, test), atol=1e-9)
