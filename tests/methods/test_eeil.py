"""EEIL: distillation of groups written out, what is left without it, and the balanced set of its second training."""

from collections.abc import Iterator

import numpy as np
import pytest
import torch

from dsal.data import ImageData
from dsal.methods import Phase
from dsal.methods.network.kit.losses import distillation, grouped_distillation
from dsal.training import Fit

RANDOM = np.random.RandomState(0)
LOGITS, OLD = (torch.from_numpy(2 * RANDOM.standard_normal((8, c))) for c in (7, 5))


def softmax(row: np.ndarray) -> np.ndarray:
    return np.exp(row) / np.exp(row).sum()


def test_distillation_of_groups_written_out() -> None:
    terms = []
    for o, old in zip(LOGITS.numpy(), OLD.numpy(), strict=True):
        terms.append(sum(-(softmax(old[g] / 2) * np.log(softmax(o[g] / 2))).sum() for g in (slice(0, 3), slice(3, 5))))
    assert float(grouped_distillation(LOGITS, OLD, [3, 2, 2], 2.0)) == pytest.approx(np.mean(terms))
    whole = grouped_distillation(LOGITS, OLD, [5, 2], 2.0)
    assert float(whole) == pytest.approx(float(distillation(LOGITS[:, :5], OLD, 2.0)))


def test_distilled_by_itself_it_pulls_nowhere_and_a_single_class_never_does() -> None:
    logits = LOGITS.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(grouped_distillation(logits, LOGITS, [3, 2, 2], 2.0), logits)
    assert gradient.abs().max() < 1e-7
    (gradient,) = torch.autograd.grad(grouped_distillation(logits, OLD, [1] * 7, 2.0), logits)
    assert not gradient.any()


def test_without_distillation_and_tuning_it_does_not_ask_the_network_before(
    trained: object, three: list[Phase], test: ImageData, monkeypatch: pytest.MonkeyPatch
) -> None:
    off = {"tune_epochs": 0, "strength": 0.0}
    silent = trained("eeil", three[:2], **off).scores(test)  # type: ignore[operator]
    assert (trained("eeil", three[:2], tune_epochs=0).scores(test) != silent).any()  # type: ignore[operator]
    monkeypatch.setattr("dsal.methods.network.eeil.EEIL.has_teacher", False)
    np.testing.assert_array_equal(trained("eeil", three[:2], **off).scores(test), silent)  # type: ignore[operator]


def test_the_second_training_has_as_many_images_of_every_class(
    trained: object, three: list[Phase], monkeypatch: pytest.MonkeyPatch
) -> None:
    method = trained("eeil", three[:1], exemplars_per_class=5, tune_epochs=1)  # type: ignore[operator]
    seen: list[list[int]] = []
    taught: list[int] = []
    original = Fit.steps

    def steps(fit: Fit) -> Iterator[object]:
        seen.append(torch.bincount(fit.samples.labels).tolist())
        taught.append(method.teacher.head.classes)
        yield from original(fit)

    monkeypatch.setattr(Fit, "steps", steps)
    for _ in method.learn(three[1]):
        pass
    assert seen == [[5] * 4 + [15] * 2, [5] * 6]
    assert taught == [4, 6]  # then the network after the first training teaches, new classes included
    assert method.stored_samples == 30
