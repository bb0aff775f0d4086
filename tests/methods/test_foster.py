"""FOSTER: its losses written out, a boosted network that begins as the old one, and what compression leaves."""

from typing import cast

import numpy as np
import pytest
import torch

from dsal.data import ImageData
from dsal.methods import Phase
from dsal.methods.network.foster import FOSTER, Boosted, BoostedOutput, boosting_loss
from dsal.methods.network.kit.losses import distillation, effective_weights

RANDOM = np.random.RandomState(0)
LOGITS, FRESH, OLD = (torch.from_numpy(2 * RANDOM.standard_normal((6, c))) for c in (5, 5, 3))
LABELS = torch.tensor([0, 4, 3, 1, 4, 2])


def softmax(row: np.ndarray) -> np.ndarray:
    return np.exp(row) / np.exp(row).sum()


def test_rare_classes_weigh_more() -> None:
    counts = [1, 20, 500]
    raw = np.array([(1 - 0.94) / (1 - 0.94**n) for n in counts])
    np.testing.assert_allclose(effective_weights(torch.tensor(counts), 0.94), raw / raw.mean(), rtol=1e-6)
    assert effective_weights(torch.tensor(counts), 0.0).tolist() == [1, 1, 1]
    assert torch.isfinite(effective_weights(torch.tensor([0, 500]), 0.94)).all()


def test_the_boosting_loss_written_out() -> None:
    weights = np.array([1.5, 1.5, 1.5, 0.25, 0.25])
    terms = []
    for o, fresh, old, y in zip(LOGITS.numpy(), FRESH.numpy(), OLD.numpy(), LABELS.numpy(), strict=True):
        kept = -(softmax(old / 2) * np.log(softmax(o[:3] / 2))).sum()
        terms.append(-np.log(softmax(o / weights)[y]) - np.log(softmax(fresh)[y]) + 0.5 * kept)
    loss = boosting_loss(BoostedOutput(LOGITS, FRESH, OLD), LABELS, torch.from_numpy(weights), 0.5, 2.0)
    assert float(loss) == pytest.approx(np.mean(terms))


def test_balanced_distillation_written_out() -> None:
    weights = np.array([2.0, 1.0, 0.5, 1.0, 0.5])
    terms = []
    for o, teacher in zip(LOGITS.numpy(), FRESH.numpy(), strict=True):
        soft = softmax(teacher / 2) * weights
        terms.append(-(soft / soft.sum() * np.log(softmax(o / 2))).sum())
    assert float(distillation(LOGITS, FRESH, 2.0, torch.from_numpy(weights))) == pytest.approx(np.mean(terms))
    even = distillation(LOGITS, FRESH, 2.0, torch.full((5,), 3.0).double())
    assert float(even) == pytest.approx(float(distillation(LOGITS, FRESH, 2.0)))


def test_compressing_an_unchanged_network_pulls_nowhere() -> None:
    student = LOGITS.clone().requires_grad_()
    loss = distillation(student, LOGITS, 2.0, effective_weights(torch.full((5,), 20), 0.97))
    assert torch.autograd.grad(loss, student)[0].abs().max() < 1e-7


def test_a_boosted_network_whose_new_features_do_not_count_is_the_old_one(
    trained: object, three: list[Phase], test: ImageData
) -> None:
    method = cast(FOSTER, trained("foster", three[:1]))  # type: ignore[operator]
    x = method.network.normalise(test.images)
    before = method.network.eval()(x).logits
    method.network.grow(2, torch.Generator())
    boosted = Boosted(method.network, 4, torch.Generator()).eval()
    with torch.no_grad():
        boosted.new["both"].weights[0][:, 16:] = 0  # type: ignore[index,union-attr]
        said = boosted(x)
    torch.testing.assert_close(said.logits[:, :4], before)
    torch.testing.assert_close(said.old, before)
    assert boosted.train().old.training is False
    assert boosted.new["body"].training


def test_the_old_network_is_frozen_while_boosting_and_one_network_is_left(
    trained: object, three: list[Phase], test: ImageData
) -> None:
    method = cast(FOSTER, trained("foster", three[:1], compress_epochs=0))  # type: ignore[operator]
    before = {name: value.clone() for name, value in method.network.state_dict().items()}
    alone = method.state().nbytes - method.exemplars.nbytes
    for _ in method.learn(three[1]):
        pass
    after = method.network.state_dict()
    assert all(torch.equal(value, after[name]) for name, value in before.items())  # and nothing was compressed into it
    grown = method.state().nbytes - method.exemplars.nbytes - alone
    assert grown < 2000  # two rows of the head, the labels of their exemplars
    boosted = cast(FOSTER, trained("foster", three[:2], answer="boosted", compress_epochs=0))  # type: ignore[operator]
    assert boosted.state().nbytes > 2.5 * method.state().nbytes - 2 * method.exemplars.nbytes
    assert (boosted.scores(test) != method.scores(test)).any()
