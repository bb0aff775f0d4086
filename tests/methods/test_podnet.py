"""PODNet: its losses written out, what is left without its terms, and the balanced set its proxies are tuned on."""

from collections.abc import Iterator

import numpy as np
import pytest
import torch
from sklearn.cluster import KMeans
from torch import Tensor

from dsal.data import ImageData
from dsal.methods import Phase
from dsal.methods.network.kit.growing_network import Output
from dsal.methods.network.kit.heads import ProxyHead
from dsal.methods.network.kit.losses import nca, pod_spatial
from dsal.methods.network.podnet import _centres, podnet_loss
from dsal.training import Fit

RANDOM = np.random.RandomState(0)
MAPS, OLD = ([torch.from_numpy(RANDOM.standard_normal((3, c, 4, 5))) for c in (2, 6)] for _ in range(2))
LOGITS = torch.from_numpy(3 * RANDOM.standard_normal((4, 5)))
LABELS = torch.tensor([0, 4, 2, 1])


def test_the_nca_loss_written_out() -> None:
    terms = []
    for row, label in zip(LOGITS.numpy(), LABELS.numpy(), strict=True):
        z = row - row.max()
        terms.append(-np.log(np.exp(z[label]) / (1 + sum(np.exp(z[j]) for j in range(5) if j != label))))
    assert float(nca(LOGITS, LABELS)) == pytest.approx(np.mean(terms))
    assert float(nca(LOGITS + 7, LABELS)) == pytest.approx(np.mean(terms))  # a margin of all classes cancels


def pooled(image: np.ndarray) -> np.ndarray:
    """Of one map (channels, height, width), one number at a time."""
    channels, height, width = image.shape
    sums = [sum(image[c, h, w] ** 2 for w in range(width)) for c in range(channels) for h in range(height)]
    sums += [sum(image[c, h, w] ** 2 for h in range(height)) for c in range(channels) for w in range(width)]
    return np.array(sums) / np.linalg.norm(sums)


def test_the_distance_of_maps_written_out() -> None:
    depths = [
        np.mean([np.linalg.norm(pooled(a) - pooled(b)) for a, b in zip(now.numpy(), old.numpy(), strict=True)])
        for now, old in zip(MAPS, OLD, strict=True)
    ]
    assert float(pod_spatial(MAPS, OLD)) == pytest.approx(np.mean(depths), abs=1e-6)
    assert float(pod_spatial([3 * x for x in MAPS], OLD)) == pytest.approx(np.mean(depths), abs=1e-6)


def test_the_whole_loss_by_hand() -> None:
    """Three of five classes are old: the distillation grows with sqrt(5 / 2)."""
    features, old = (torch.from_numpy(RANDOM.standard_normal((3, 7))) for _ in range(2))
    now, before = Output(LOGITS[:3], features, tuple(MAPS)), Output(LOGITS[:3, :3], old, tuple(OLD))
    cosines = [
        f @ g / np.linalg.norm(f) / np.linalg.norm(g) for f, g in zip(features.numpy(), old.numpy(), strict=True)
    ]
    depths = [
        np.mean([np.linalg.norm(pooled(a) - pooled(b)) for a, b in zip(one.numpy(), other.numpy(), strict=True)])
        for one, other in zip(MAPS, OLD, strict=True)
    ]
    alone = float(nca(LOGITS[:3], LABELS[:3]))
    expected = alone + np.sqrt(5 / 2) * (3 * np.mean(depths) + 0.7 * np.mean([1 - c for c in cosines]))
    assert float(podnet_loss(now, before, LABELS[:3], 3.0, 0.7)) == pytest.approx(expected, abs=1e-6)


def test_the_centres_of_a_class_are_those_of_one_clustering_and_repeat_in_turn() -> None:
    rows = torch.from_numpy(RANDOM.standard_normal((60, 3))).float()
    for seed in range(6):  # the better one of two clusterings would often be the second
        expected = KMeans(8, n_init=1, random_state=seed).fit(rows.numpy()).cluster_centers_
        np.testing.assert_allclose(_centres(rows, 8, seed), expected, rtol=1e-6)
    few = _centres(rows[:2], 5, 0)
    np.testing.assert_array_equal(few, few[:2][[0, 1, 0, 1, 0]])
    np.testing.assert_allclose(np.sort(few[:2], axis=0), np.sort(rows[:2], axis=0), rtol=1e-6)


def test_maps_distilled_by_themselves_cost_nothing_and_pull_nowhere() -> None:
    maps = [x.clone().requires_grad_() for x in MAPS]
    loss = pod_spatial(maps, MAPS)
    assert float(loss.detach()) == 0
    for gradient in torch.autograd.grad(loss, maps):
        assert not gradient.any()


def test_a_class_is_as_near_as_its_near_proxies() -> None:
    head = ProxyHead(7, proxies=3)
    for classes in (2, 1):
        head.grow(classes, torch.Generator().manual_seed(classes))
    assert head.groups == [2, 1]
    head.scale.data.fill_(2.5)
    features, weights = torch.randn(4, 7, generator=torch.Generator().manual_seed(0)), head.all_weights().detach()
    expected = np.zeros((4, 3))
    for n, f in enumerate(features.numpy()):
        for c in range(3):
            own = weights.numpy()[3 * c : 3 * c + 3]
            z = np.array([-np.sum((f / np.linalg.norm(f) - w / np.linalg.norm(w)) ** 2) for w in own])
            expected[n, c] = 2.5 * (np.exp(z) / np.exp(z).sum()) @ z
    np.testing.assert_allclose(head(features).detach(), expected, atol=1e-5)


def test_without_distillation_maps_and_features_are_free(trained: object, three: list[Phase], test: ImageData) -> None:
    def scores(**options: object) -> np.ndarray:
        return trained("podnet", three[:2], proxies=2, tune_epochs=0, **options).scores(test)  # type: ignore[operator]

    plain, flat, spatial = scores(spatial=0.0, flat=0.0), scores(spatial=0.0), scores(flat=0.0)
    assert (flat != plain).any()
    assert (spatial != plain).any()
    assert (spatial != flat).any()


def test_without_distillation_it_does_not_ask_the_network_before(
    trained: object, three: list[Phase], test: ImageData, monkeypatch: pytest.MonkeyPatch
) -> None:
    off = {"proxies": 2, "tune_epochs": 0, "spatial": 0.0, "flat": 0.0}
    silent = trained("podnet", three[:2], **off).scores(test)  # type: ignore[operator]
    monkeypatch.setattr("dsal.methods.network.podnet.PODNet.has_teacher", False)
    np.testing.assert_array_equal(trained("podnet", three[:2], **off).scores(test), silent)  # type: ignore[operator]


def test_proxies_are_tuned_on_as_many_images_of_every_class_and_nothing_else_moves(
    trained: object, three: list[Phase], monkeypatch: pytest.MonkeyPatch
) -> None:
    method = trained("podnet", three[:1], proxies=2, exemplars_per_class=5, tune_epochs=2)  # type: ignore[operator]
    seen: list[list[int]] = []
    states: list[dict[str, Tensor]] = []
    original = Fit.steps

    def steps(fit: Fit) -> Iterator[object]:
        seen.append(torch.bincount(fit.samples.labels).tolist())
        states.append({name: value.clone() for name, value in method.network.state_dict().items()})
        yield from original(fit)

    monkeypatch.setattr(Fit, "steps", steps)
    for _ in method.learn(three[1]):
        pass
    assert seen == [[5] * 4 + [15] * 2, [5] * 6]
    moved = {name for name, value in method.network.state_dict().items() if not torch.equal(value, states[1][name])}
    assert moved == {"head.weights.0", "head.weights.1"}
