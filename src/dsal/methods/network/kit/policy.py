"""A policy of memory management, learned by reinforcement on small tasks made of the classes of phase 0.

The tasks learn a linear head on the features of the frozen phase-0 network: training a network for each of hundreds of
tasks, as published, would take days. So the policy weighs new images against exemplars by the effect of imbalance on a
head, not by the effect of training on features.
"""

from __future__ import annotations

from typing import NamedTuple, cast

import torch
from torch import Generator, Tensor, nn
from torch.nn import functional

SHARES = tuple(step / 10 for step in range(10))
"""Values of m that a policy chooses from."""
TILTS = (-0.2, -0.1, 0.0, 0.1, 0.2)
"""Values of c that a policy chooses from."""
PER_CLASS, PHASES, STEPS = 60, 5, 40  # of a task: images per class (a third for testing), phases, gradient steps


class Action(NamedTuple):
    """The memory management of a phase: m and c."""

    memory: float
    tilt: float


class Policy(nn.Module):
    """Probabilities of m, and of c given m, as functions of the sizes of a phase."""

    def __init__(self, hidden: int = 32) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.Linear(2, hidden), nn.ReLU(), nn.Linear(hidden, len(SHARES)))
        self.second = nn.Sequential(nn.Linear(3, hidden), nn.ReLU(), nn.Linear(hidden, len(TILTS)))

    def memory(self, state: Tensor) -> Tensor:
        """Return log-probabilities of m, for a state (2,)."""
        return cast(Tensor, self.first(state)).log_softmax(0)

    def tilt(self, state: Tensor, share: float) -> Tensor:
        """Return log-probabilities of c, for a state (2,) and m."""
        return cast(Tensor, self.second(torch.cat([state, torch.tensor([share])]))).log_softmax(0)

    @torch.no_grad()
    def best(self, known: int, new: int, exemplars: int, images: int) -> Action:
        """Return the most probable action."""
        state = phase_state(known, new, exemplars, images)
        share = SHARES[int(self.memory(state).argmax())]
        return Action(share, TILTS[int(self.tilt(state, share).argmax())])


def phase_state(known: int, new: int, exemplars: int, images: int) -> Tensor:
    """Return the state (2,) of a phase: new classes / all classes, exemplars / (exemplars + new images)."""
    return torch.tensor([new / (known + new), exemplars / max(1, exemplars + images)])


def learn_policy(features: Tensor, labels: Tensor, per_class: int, episodes: int, seed: int) -> Policy | None:
    """Learn a policy by REINFORCE (Williams, 1992) with the mean return so far as baseline.

    Return None if fewer than two classes have three samples: no task can be made of them.

    Args:
        features: (n, d) of the classes of phase 0.
        labels: (n,).
        per_class: exemplars per class without management, of about 500 images; tasks keep the same fraction.
        episodes: number of tasks.
        seed: seed of tasks, actions and initial weights.
    """
    generator = Generator().manual_seed(seed)
    if len(_draw_task(labels, generator)[0]) < 2:
        return None
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        policy = Policy()
    optimiser = torch.optim.Adam(policy.parameters(), 5e-3)
    small, total = max(1, per_class * PER_CLASS // 500), 0.0
    for episode in range(episodes):
        probabilities, rewards = _episode(policy, features, labels, small, generator)
        mean = sum(rewards) / len(rewards)
        total += mean
        loss = -(mean - total / (episode + 1)) * torch.stack(probabilities).sum()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    return policy.requires_grad_(False)


def tilted(each: int, losses: dict[int, float], tilt: float) -> dict[int, int]:
    """Return the exemplars per class: 1 + c times as many below the median loss, 1 - c times above, never more in all.

    >>> tilted(20, {7: 0.3, 8: 0.1, 9: 0.2}, 0.1)
    {7: 18, 8: 22, 9: 20}
    """
    if not losses:
        return {}
    ordered = sorted(losses, key=lambda label: losses[label])
    change, half = int(tilt * each), len(ordered) // 2
    low, high = ordered[:half], ordered[len(ordered) - half :]
    return {label: each + change * ((label in low) - (label in high)) for label in losses}


def _episode(
    policy: Policy, features: Tensor, labels: Tensor, each: int, generator: Generator
) -> tuple[list[Tensor], list[float]]:
    """Run one task under the policy; return log-probabilities of its actions and the accuracy after each phase."""
    train, test = _draw_task(labels, generator)
    classes = len(train)
    base = max(1, classes // 2)
    groups = [list(part) for part in torch.arange(base, classes).tensor_split(PHASES) if len(part)]
    kept = {c: train[c] for c in range(base)}
    head = torch.zeros(classes, features.shape[1])
    _descend(head, features, kept, base)
    logs, rewards, room = [], [], max(sum(len(train[int(c)]) for c in group) for group in groups)
    for group in groups:
        known, seen = int(group[0]), int(group[-1]) + 1
        state = phase_state(known, seen - known, each * known, room)
        memory = policy.memory(state)
        m = int(memory.exp().multinomial(1, generator=generator))
        tilt = policy.tilt(state, SHARES[m])
        c = int(tilt.exp().multinomial(1, generator=generator))
        logs += [memory[m], tilt[c]]
        share, change = SHARES[m], TILTS[c]
        count = each + int(share * room) // known
        used = {int(new): train[int(new)][: max(1, round((1 - share) * len(train[int(new)])))] for new in group}
        _descend(head, features, {old: rows[:count] for old, rows in kept.items()} | used, seen)
        errors = {new: _loss(head, features, {new: rows}, seen) for new, rows in used.items()}
        counts = tilted(count, errors, change)
        kept |= {new: rows[: max(1, counts[new])] for new, rows in used.items()}
        kept = {old: rows[:count] if old < known else rows for old, rows in kept.items()}
        right = torch.cat([torch.full((len(test[i]),), i) for i in range(seen)])
        answers = (features[torch.cat(test[:seen])] @ head[:seen].T).argmax(1)
        rewards.append(float((answers == right).float().mean()))
    return logs, rewards


def _draw_task(labels: Tensor, generator: Generator) -> tuple[list[Tensor], list[Tensor]]:
    """Draw training and test rows of each class; classes come in random order, without those that have too few rows."""
    train, test = [], []
    for label in labels.unique()[torch.randperm(len(labels.unique()), generator=generator)]:
        rows = torch.nonzero(labels == label).flatten()
        rows = rows[torch.randperm(len(rows), generator=generator)][:PER_CLASS]
        if len(rows) >= 3:
            test.append(rows[: len(rows) // 3])
            train.append(rows[len(rows) // 3 :])
    return train, test


def _loss(head: Tensor, features: Tensor, rows: dict[int, Tensor], seen: int) -> float:
    labels = torch.cat([torch.full((len(own),), label) for label, own in rows.items()])
    return float(functional.cross_entropy(_SCALE * features[torch.cat(list(rows.values()))] @ head[:seen].T, labels))


_SCALE = 10.0  # features have length 1


def _descend(head: Tensor, features: Tensor, rows: dict[int, Tensor], seen: int) -> None:
    """Run gradient descent with momentum on the cross-entropy of a head (classes, d), in place."""
    labels = torch.cat([torch.full((len(own),), label) for label, own in rows.items()])
    x, target = _SCALE * features[torch.cat(list(rows.values()))], functional.one_hot(labels, seen).float()
    velocity = torch.zeros_like(head[:seen])
    for _ in range(STEPS):
        gradient = ((x @ head[:seen].T).softmax(1) - target).T @ x / len(x)
        velocity = 0.9 * velocity + gradient
        head[:seen] -= 0.05 * velocity
