"""BiC: its loss written out, a correction that begins as the identity, images that the network never trains on."""

from collections.abc import Iterator
from typing import cast

import numpy as np
import pytest
import torch

from dsal.data import ImageData
from dsal.methods import Phase
from dsal.methods.network.bic import BiasCorrection, bic_loss, learn_correction_
from dsal.methods.network.kit.exemplars import balanced_split
from dsal.methods.network.kit.heads import CorrectedHead, LinearHead
from dsal.training import Fit
from dsal.training.recipe import Recipe

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


def biased_scores(head: CorrectedHead) -> tuple[torch.Tensor, torch.Tensor]:
    """Scores of five classes in three phases, and labels: those of the two last are three times too high, plus one."""
    generator = torch.Generator().manual_seed(0)
    for classes in (2, 1, 2):
        head.grow(classes, generator)
    right = 2 * torch.randn(3000, 5, generator=generator)
    labels = right.softmax(1).multinomial(1, generator=generator).flatten()
    return torch.cat([right[:, :3], 3 * right[:, 3:] + 1], dim=1), labels


def learned_correction(head: CorrectedHead, penalty: float, seed: int = 0, **options: float) -> tuple[float, float]:
    """a and b, learned from a = 1 and b = 0."""
    biased, labels = biased_scores(head)
    recipe = Recipe(**{"epochs": 30, "batch_size": 500, "lr": 0.1, "milestones": (0.6, 0.8), **options})  # type: ignore[arg-type]
    learn_correction_(head, biased, labels, recipe, penalty, torch.Generator().manual_seed(seed))
    return float(head.correction.scale.detach()), float(head.correction.shift.detach())


def test_the_correction_is_the_one_of_the_least_loss() -> None:
    """New classes score three times too high, and one too much: a = 1/3 and b = -1/3 undo it, but for the penalty."""
    a, b = learned_correction(CorrectedHead(7), 0.0)
    assert (a, b) == (pytest.approx(1 / 3, abs=0.03), pytest.approx(-1 / 3, abs=0.1))
    assert abs(learned_correction(CorrectedHead(7), 10.0)[1]) < 0.05


def test_the_penalty_is_half_its_weight_times_the_square() -> None:
    """At the least loss the slope of the cross-entropy in b is minus the weight times b."""
    head = CorrectedHead(7)
    a, b = learned_correction(head, 0.2, epochs=400, batch_size=3000)
    biased, labels = biased_scores(CorrectedHead(7))
    shift = torch.tensor(b, requires_grad=True)
    torch.nn.functional.cross_entropy(torch.cat([biased[:, :3], a * biased[:, 3:] + shift], 1), labels).backward()
    assert float(shift.grad or 0) == pytest.approx(-0.2 * b, rel=0.02)


def test_the_order_of_the_images_is_that_of_the_seed() -> None:
    found = []
    for seed in (0, 0, 1):
        torch.manual_seed(len(found))
        found.append(learned_correction(CorrectedHead(7), 0.0, seed, epochs=2))
    assert found[0] == found[1] != found[2]


def test_the_correction_is_learned_on_images_as_they_are(
    trained: object, three: list[Phase], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Augmented ones are harder: a correction learned on a few of them gives new classes hardly any answer."""
    seen: list[torch.Tensor] = []

    def learn(head: CorrectedHead, logits: torch.Tensor, *rest: object) -> None:
        seen.append(logits)
        learn_correction_(head, logits, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr("dsal.methods.network.bic.learn_correction_", learn)
    method = trained("bic", three[:1], bias_epochs=1)  # type: ignore[operator]
    split = method.part(BiasCorrection).split(three[1])
    for _ in method.learn(three[1]):
        pass
    with torch.no_grad():
        method.network.head.correction.scale.fill_(1)
        method.network.head.correction.shift.fill_(0)
        images = next(split.held_out.batches(1000))[0]
        expected = method.network.eval()(method.network.normalise(images)).logits
    torch.testing.assert_close(seen[0], expected)


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
    split = method.part(BiasCorrection).split(three[1])
    for _ in method.learn(three[1]):
        pass
    (fit,) = fits
    assert torch.bincount(fit.samples.labels).tolist() == [8] * 4 + [13] * 2
    assert torch.bincount(split.held_out.labels).tolist() == [2] * 6
    trained_on, held_out = (next(samples.batches(1000))[0] for samples in (fit.samples, split.held_out))
    assert not (held_out.flatten(1)[:, None] == trained_on.flatten(1)).all(2).any()
    assert method.stored_samples == 60


def test_one_exemplar_of_a_class_is_not_held_out(three: list[Phase]) -> None:
    one = three[0].samples.take(torch.tensor([0]))
    assert balanced_split(three[1].samples, cast(ImageData, one), 0.1, 0) is None
    assert balanced_split(three[1].samples, None, 0.1, 0) is None
