"""BiC: its loss written out, a correction that begins as the identity, images that the network never trains on."""

from collections.abc import Iterator
from typing import cast

import numpy as np
import pytest
import torch

from dsal.data import ImageData
from dsal.methods import Phase
from dsal.methods.network.bic import bic_loss
from dsal.methods.network.kit.heads import CorrectedHead, LinearHead
from dsal.methods.network.kit.splits import balanced_split
from dsal.training import Fit

RANDOM = np.random.RandomState(0)
LOGITS, OLD = (torch.from_numpy(2 * RANDOM.standard_normal((6, c))) for c in (5, 3))
LABELS = torch.tensor([0, 4, 3, 1, 4, 2])


def softmax(row: np.ndarray) -> np.ndarray:
    return np.exp(row) / np.exp(row).sum()


def test_the_loss_written_out() -> None:
    terms = []
    for o, old, y in zip(LOGITS.numpy(), OLD.numpy(), LABELS.numpy(), strict=True):
        kept = -(softmax(old / 2) * np.log(softmax(o[:3] / 2))).sum()
        terms.append(3 / 5 * kept - 2 / 5 * np.log(softmax(o)[y]))
    assert float(bic_loss(LOGITS, OLD, LABELS, 2.0)) == pytest.approx(np.mean(terms))


def test_the_correction_is_the_identity_at_first_and_then_of_new_classes_alone() -> None:
    heads = CorrectedHead(7), LinearHead(7)
    for head in heads:
        for classes in (3, 2):
            head.grow(classes, torch.Generator().manual_seed(classes))
    corrected, plain = cast(CorrectedHead, heads[0]), heads[1]
    features = torch.randn(4, 7, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(corrected(features), plain(features), rtol=0, atol=0)
    corrected.correction.scale.data.fill_(0.5)
    corrected.correction.shift.data.fill_(-1.0)
    expected = plain(features)
    torch.testing.assert_close(corrected(features)[:, :3], expected[:, :3], rtol=0, atol=0)
    torch.testing.assert_close(corrected(features)[:, 3:], 0.5 * expected[:, 3:] - 1)
    for head in heads:
        head.grow(2, torch.Generator().manual_seed(9))
    torch.testing.assert_close(corrected(features), plain(features), rtol=0, atol=0)  # it begins anew


def test_without_a_second_training_nothing_is_corrected(trained: object, three: list[Phase], test: ImageData) -> None:
    plain = trained("bic", three[:2], bias_epochs=0)  # type: ignore[operator]
    correction = plain.network.head.requires_grad_(False).correction
    assert (float(correction.scale), float(correction.shift)) == (1, 0)
    tuned = trained("bic", three[:2], bias_epochs=5)  # type: ignore[operator]
    scores, corrected = plain.scores(test), tuned.scores(test)
    tuned.network.requires_grad_(False)
    np.testing.assert_array_equal(corrected[:, :4], scores[:, :4])  # the network itself was frozen
    a, b = (float(value) for value in (tuned.network.head.correction.scale, tuned.network.head.correction.shift))
    assert (a, b) != (1, 0)
    np.testing.assert_allclose(corrected[:, 4:], a * scores[:, 4:] + b, rtol=1e-5, atol=1e-5)


def test_the_held_out_images_are_balanced_and_not_trained_on(
    trained: object, three: list[Phase], monkeypatch: pytest.MonkeyPatch
) -> None:
    method = trained("bic", three[:1], exemplars_per_class=10, held_out=0.2, bias_epochs=1)  # type: ignore[operator]
    fits: list[Fit] = []
    original = Fit.steps

    def steps(fit: Fit) -> Iterator[object]:
        fits.append(fit)
        yield from original(fit)

    monkeypatch.setattr(Fit, "steps", steps)
    for _ in method.learn(three[1]):
        pass
    counts = [torch.bincount(fit.samples.labels).tolist() for fit in fits]
    assert counts == [[8] * 4 + [13] * 2, [2] * 6]
    trained_on, held_out = (next(fit.samples.batches(1000))[0] for fit in fits)
    assert not (held_out.flatten(1)[:, None] == trained_on.flatten(1)).all(2).any()
    assert method.stored_samples == 60


def test_one_exemplar_of_a_class_is_not_held_out(three: list[Phase]) -> None:
    one = three[0].samples.take(torch.tensor([0]))
    assert balanced_split(three[1].samples, cast(ImageData, one), 0.1, 0) is None
    assert balanced_split(three[1].samples, None, 0.1, 0) is None
