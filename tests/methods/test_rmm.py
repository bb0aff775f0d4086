"""RMM: without actions it is the method below; with them, memory stays within what it may hold; a learned policy."""

from collections.abc import Iterator

import numpy as np
import pytest
import torch
from torch import Tensor

from dsal.data import ImageData
from dsal.errors import InputError
from dsal.methods import METHODS, Phase
from dsal.methods.network.kit.policy import SHARES, TILTS, Policy, learn_policy, phase_state
from dsal.methods.network.rmm import PUBLISHED, tilted
from dsal.training import Fit

ROOM = {"exemplars_per_class": 3, "phase_images": 30}


def test_without_actions_it_is_the_method_below(trained: object, three: list[Phase], test: ImageData) -> None:
    plain = trained("icarl", three, exemplars_per_class=3).scores(test)  # type: ignore[operator]
    off = {"memory_shares": (0.0,), "class_shares": (0.0,)}
    np.testing.assert_array_equal(trained("icarl-rmm", three, **ROOM, **off).scores(test), plain)  # type: ignore[operator]


def test_exemplars_take_the_room_of_new_images_and_no_more(
    trained: object, three: list[Phase], monkeypatch: pytest.MonkeyPatch
) -> None:
    shares = (0.8, 0.4, 0.2)
    method = trained("icarl-rmm", three[:1], **ROOM, memory_shares=shares, class_shares=(0.25,))  # type: ignore[operator]
    held: list[int] = []
    original = Fit.steps

    def steps(fit: Fit) -> Iterator[object]:
        held.append(len(fit.samples))
        yield from original(fit)

    monkeypatch.setattr(Fit, "steps", steps)
    kept = [torch.bincount(method.exemplars.data.labels).tolist()]
    for phase in three[1:]:
        for _ in method.learn(phase):
            pass
        kept.append(torch.bincount(method.exemplars.data.labels).tolist())
    assert sum(kept[0]) == 4 * ((3 * 4 + 24) // 4)
    for phase, (now, share) in enumerate(zip(kept[1:], shares[1:], strict=True), start=1):
        classes = len(now)
        each = (3 * classes + int(share * 30)) // classes
        assert sum(now) <= 3 * classes + int(share * 30)
        assert set(now[:-2]) == {each}  # old classes
        assert sorted(now[-2:]) == [each - int(0.25 * each), each + int(0.25 * each)]
        new = 2 * round((1 - share) * 15)
        old = 3 * (classes - 2) + int(share * 30)
        assert new <= held[phase - 1] <= old + new <= 3 * (classes - 2) + 30  # while it trains


def test_easy_classes_keep_more_and_the_sum_stays() -> None:
    losses = {0: 3.0, 1: 0.5, 2: 1.0, 3: 2.0, 4: 0.1}
    assert tilted(10, losses, 0.3) == {0: 7, 1: 13, 2: 10, 3: 7, 4: 13}
    assert sum(tilted(10, losses, -0.3).values()) == 50
    assert tilted(10, {4: 1.0}, 0.3) == {4: 10}  # one class a phase: its loss is the median


def test_published_lists_have_an_action_for_every_phase() -> None:
    assert {k: len(shares) for k, shares in PUBLISHED.items()} == {5: 6, 10: 11, 25: 26}
    method = METHODS.get("rmm")(memory_shares=PUBLISHED[25])
    assert [method.memory.action(phase, 50, 2).memory for phase in (0, 12, 25, 40)] == [0.7, 0.8, 0.9, 0.9]  # type: ignore[attr-defined]
    with pytest.raises(InputError, match=r"memory_shares must be in \[0, 1\)"):
        METHODS.get("rmm")(memory_shares=(1.0,))


def test_a_policy_is_learned_from_the_classes_of_phase_0_and_kept(trained: object, three: list[Phase]) -> None:
    method = trained("icarl-rmm", three[:1], **ROOM, actions="learned", episodes=3)  # type: ignore[operator]
    action = method.memory.action(1, 4, 2)
    assert action.memory in SHARES
    assert action.tilt in TILTS
    again = type(method).from_state(method.state())
    assert again.memory.action(1, 4, 2) == action
    assert again.exemplars.per_class == method.exemplars.per_class


def test_reinforcement_finds_what_pays(monkeypatch: pytest.MonkeyPatch) -> None:
    def rewarded(policy: Policy, *rest: object) -> tuple[list[Tensor], list[float]]:
        generator = rest[-1]
        assert isinstance(generator, torch.Generator)
        memory = policy.memory(phase_state(50, 10, 1000, 5000))
        choice = int(memory.exp().multinomial(1, generator=generator))
        return [memory[choice]], [SHARES[choice]]  # the more memory, the better

    features, labels = torch.randn(20, 4, generator=torch.Generator().manual_seed(0)), torch.arange(20) % 4
    monkeypatch.setattr("dsal.methods.network.kit.policy._episode", rewarded)
    policy = learn_policy(features, labels, 20, 300, 0)
    assert policy is not None
    assert policy.best(50, 10, 1000, 5000).memory >= 0.8


def test_a_policy_is_the_same_for_the_same_seed_and_needs_two_classes() -> None:
    generator = torch.Generator().manual_seed(0)
    features, labels = torch.randn(100, 8, generator=generator), torch.arange(10).repeat_interleave(10)
    first, again, other = (learn_policy(features, labels, 20, 3, seed) for seed in (0, 0, 1))
    weights = [list(policy.parameters()) for policy in (first, again, other) if policy is not None]
    assert all(torch.equal(a, b) for a, b in zip(weights[0], weights[1], strict=True))
    assert not torch.equal(weights[0][0], weights[2][0])
    assert learn_policy(features[:10], labels[:10], 20, 2, 0) is None
