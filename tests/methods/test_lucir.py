"""LUCIR: its whole loss by hand, and rows of the head that start as the means of their classes from phase 1 on."""

from collections.abc import Callable
from itertools import combinations

import numpy as np
import pytest
import torch
from torch.nn import functional

from dsal.methods import Phase
from dsal.methods.checks import learn
from dsal.methods.network.kit.growing_network import Output
from dsal.methods.network.kit.network_method import NetworkMethod
from dsal.methods.network.lucir import lucir_loss

Trained = Callable[..., NetworkMethod]
STILL = {"lr": 1e-12, "epochs": 1, "base_epochs": 1}  # training moves nothing


def test_the_whole_loss_by_hand() -> None:
    """Two old and two new classes, so lambda is 5 sqrt(2 / 2), times sqrt(3) with six old ones; s = 4."""
    cosines = torch.tensor([[0.5, 0.1, 0.25, -0.5], [0.0, 0.2, 0.3, 0.6]])
    now = Output(4 * cosines, torch.tensor([[1.0, 0.0], [0.0, 2.0]]), ())
    before = Output(torch.zeros(2, 2), torch.tensor([[3.0, 0.0], [1.0, 0.0]]), ())
    labels = torch.tensor([0, 3])
    entropy = -np.mean(
        [2.0 - np.log(np.exp([2.0, 0.4, 1.0, -2.0]).sum()), 2.4 - np.log(np.exp([0, 0.8, 1.2, 2.4]).sum())]
    )
    forgotten = (0 + 1) / 2  # directions: one kept, one turned by 90 degrees
    ranked = (0.5 - 0.5 + 0.25 + 0) / 2  # of the one old sample, over cosines: 0.25, and -0.5 is beyond the margin
    options = {"strength": 5.0, "ranking": 1.0, "margin": 0.5, "negatives": 2}

    def loss(earlier: Output, said: Output, **changed: float) -> float:
        return float(lucir_loss(said, earlier, labels, torch.tensor(4.0), **{**options, **changed}))  # type: ignore[arg-type]

    assert loss(before, now) == pytest.approx(entropy + 5 * forgotten + ranked, rel=1e-6)
    assert loss(before, now, ranking=3.0) == pytest.approx(entropy + 5 * forgotten + 3 * ranked, rel=1e-6)
    three = before._replace(logits=torch.zeros(2, 3))  # three old classes, one new: lambda = 5 sqrt(3)
    assert loss(three, now, ranking=0.0) == pytest.approx(entropy + 5 * np.sqrt(3) * forgotten, rel=1e-6)


@pytest.mark.parametrize("name", ["lucir", "podnet"])
def test_rows_start_as_the_means_of_new_classes_from_phase_1_on(
    name: str, trained: Trained, three: list[Phase]
) -> None:
    more = {"proxies": 1, "tune_epochs": 0} if name == "podnet" else {}
    method, phase = trained(name, three[:1], **STILL, **more), three[1].samples
    features = functional.normalize(method.features_of(phase))
    learn(method, three[1])
    first, second = (functional.normalize(rows.detach()) for rows in method.network.head.weights)
    means = functional.normalize(torch.stack([features[phase.labels == c].mean(0) for c in (4, 5)]))
    torch.testing.assert_close(second, means, atol=1e-4, rtol=0)
    base = np.mean([float(a @ b) for a, b in combinations(first, 2)])
    assert base < 0.8  # imprinted rows of an untrained network would be parallel
    assert float(means[0] @ means[1]) > 0.9
    one = Phase(2, range(6, 7), three[2].samples.take(torch.nonzero(three[2].samples.labels == 6).flatten()))
    direction = functional.normalize(functional.normalize(method.features_of(one.samples)).mean(0), dim=0)
    learn(method, one)
    third = functional.normalize(method.network.head.weights[2].detach())  # as many rows as its phase has classes
    torch.testing.assert_close(third, direction[None], atol=1e-4, rtol=0)
