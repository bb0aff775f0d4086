"""The online choice of stability and plasticity: its bandit, its loss, and LUCIR where there is nothing to choose."""

from collections.abc import Iterator

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional

from dsal.data import ImageData
from dsal.methods import Phase
from dsal.methods.network.online import Arm, Exp3, Trials, scaled_divergence
from dsal.training import Fit

ONE = {"feature_weights": (1.0,), "logit_weights": (0.0,), "rates": ()}


def test_with_one_arm_it_is_lucir(trained: object, three: list[Phase], test: ImageData) -> None:
    plain = trained("lucir", three).scores(test)  # type: ignore[operator]
    np.testing.assert_array_equal(trained("online-lucir", three, **ONE).scores(test), plain)  # type: ignore[operator]


def test_without_exemplars_to_hold_out_it_takes_the_first_arm(
    trained: object, three: list[Phase], test: ImageData
) -> None:
    plain = trained("lucir", three[:2], exemplars_per_class=1).scores(test)  # type: ignore[operator]
    some = trained("online-lucir", three[:2], exemplars_per_class=1, rates=())  # type: ignore[operator]
    np.testing.assert_array_equal(some.scores(test), plain)


def test_arms_are_tried_on_copies_and_the_chosen_one_trains_the_phase(
    trained: object, three: list[Phase], monkeypatch: pytest.MonkeyPatch
) -> None:
    few = {"feature_weights": (0.1, 10.0), "logit_weights": (1.0,), "rates": (0.02, 0.03), "draws": 3, "draw_epochs": 1}
    method = trained("online-lucir", three[:1], **few)  # type: ignore[operator]
    before: list[tuple[Tensor, Arm, float, int]] = []
    original = Fit.steps

    def steps(fit: Fit) -> Iterator[object]:
        weight = next(method.network.body.parameters()).detach().clone()
        before.append((weight, method.arm, fit.recipe.lr, len(fit.samples)))
        yield from original(fit)

    monkeypatch.setattr(Fit, "steps", steps)
    for _ in method.learn(three[1]):
        pass
    assert len(before) == 4
    assert all(torch.equal(weight, before[0][0]) for weight, *_ in before)  # trials leave the network alone
    assert all(rate == arm.lr for _, arm, rate, _ in before)
    held_out = 2 * 6  # of 20 exemplars a class, and of the new classes
    assert [images for *_, images in before] == [15 * 6 - held_out] * 3 + [15 * 6]
    assert before[-1][1] == method.arm
    assert method.part(Trials).trial is None


def test_weights_follow_rewards() -> None:
    bandit, generator = Exp3(3, 0.2), torch.Generator().manual_seed(0)
    assert bandit.probabilities.tolist() == pytest.approx([1 / 3] * 3)
    assert bandit.best == 0
    for _ in range(200):
        arm = bandit.draw(generator)
        bandit.reward(arm, (0.1, 0.9, 0.3)[arm])
    assert bandit.best == 1
    assert float(bandit.probabilities.sum()) == pytest.approx(1)
    assert float(bandit.probabilities.min()) >= 0.2 / 3 - 1e-12


def test_one_reward_written_out() -> None:
    bandit = Exp3(4, 0.1)
    bandit.reward(2, 0.6)
    grown = np.exp(0.1 * (0.6 / 0.25) / 4)
    assert (bandit.weights / bandit.weights[0]).tolist() == pytest.approx([1, 1, grown, 1])


def test_the_divergence_is_that_of_the_published_code() -> None:
    """nn.KLDivLoss() * T * T * beta * classes, whose mean is over all elements."""
    random = np.random.RandomState(0)
    now, old = (torch.from_numpy(2 * random.standard_normal((6, 5))) for _ in range(2))
    mean = functional.kl_div((now / 2).log_softmax(1), (old / 2).softmax(1), reduction="none").mean()
    assert float(scaled_divergence(now, old, 2.0)) == pytest.approx(float(mean) * 2 * 2 * 0.25 * 5)
    student = old.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(scaled_divergence(student, old, 2.0), student)
    assert gradient.abs().max() < 1e-7
