"""Losses, heads and herding against formulas written out, one number at a time."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest
import torch

from dsal.data import ImageData, JoinedSamples
from dsal.data.samples import joined
from dsal.errors import InputError
from dsal.methods.network.kit import losses
from dsal.methods.network.kit.exemplars import Exemplars, LearnedImages, herd
from dsal.methods.network.kit.growing_network import Output
from dsal.methods.network.kit.heads import CosineHead, LinearHead
from dsal.methods.network.lwf import LwF

RANDOM = np.random.RandomState(0)
NOW, OLD = (torch.from_numpy(RANDOM.standard_normal((6, 5))) for _ in range(2))
F, F_OLD = (torch.from_numpy(RANDOM.standard_normal((6, 7))) for _ in range(2))
LABELS = torch.tensor([0, 4, 3, 1, 4, 2])


def softmax(row: np.ndarray) -> np.ndarray:
    return np.exp(row) / np.exp(row).sum()


def test_cross_entropy_over_new_classes() -> None:
    logits, labels = NOW.numpy(), np.array([3, 4, 3, 4, 4, 3])
    expected = np.mean([-np.log(softmax(row[3:])[label - 3]) for row, label in zip(logits, labels, strict=True)])
    assert float(losses.new_cross_entropy(NOW, torch.from_numpy(labels), 3)) == pytest.approx(expected)


@pytest.mark.parametrize("temperature", [1.0, 2.0])
def test_distillation(temperature: float) -> None:
    pairs = zip(NOW.numpy() / temperature, OLD.numpy() / temperature, strict=True)
    expected = np.mean([-(softmax(old) * np.log(softmax(now))).sum() for now, old in pairs])
    assert float(losses.distillation(NOW, OLD, temperature)) == pytest.approx(expected)


def test_a_network_distilled_by_itself_has_no_gradient() -> None:
    now, features = NOW.clone().requires_grad_(), F.clone().requires_grad_()
    loss = losses.distillation(now, NOW, 2.0)
    entropy = -((NOW / 2).softmax(1) * (NOW / 2).log_softmax(1)).sum(1).mean()
    assert float((loss - entropy).detach()) == pytest.approx(0, abs=1e-12)
    total = loss + losses.less_forget(features, F) + losses.feature_distance(features, F)
    assert float(losses.less_forget(F, F)) == pytest.approx(0, abs=1e-12)
    assert float(losses.feature_distance(F, F)) == 0
    for gradient in torch.autograd.grad(total, [now, features]):
        torch.testing.assert_close(gradient, torch.zeros_like(gradient), atol=1e-12, rtol=0)


def test_directions_and_distances_of_features() -> None:
    a, b = F.numpy(), F_OLD.numpy()
    cosines = [x @ y / np.linalg.norm(x) / np.linalg.norm(y) for x, y in zip(a, b, strict=True)]
    assert float(losses.less_forget(F, F_OLD)) == pytest.approx(1 - np.mean(cosines))
    assert float(losses.feature_distance(F, F_OLD)) == pytest.approx(
        0.5 * np.mean([(x - y) @ (x - y) for x, y in zip(a, b, strict=True)])
    )


def test_the_pull_of_old_weights() -> None:
    now, then, weight = ({"a": t, "b": 2 * t} for t in (NOW, OLD, NOW**2))
    expected = sum((weight[k] * (now[k] - then[k]) ** 2).sum() for k in "ab") / 2
    grown = {**now, "new": torch.ones(3)}
    assert float(losses.quadratic_pull(grown, then, weight)) == pytest.approx(float(expected))


@pytest.mark.parametrize(("known", "negatives"), [(3, 2), (4, 2), (3, 1)])
def test_ranking_of_old_samples_against_new_classes(known: int, negatives: int) -> None:
    terms = []
    for row, label in zip(NOW.numpy(), LABELS.numpy(), strict=True):
        if label < known:
            terms += [max(0.0, 0.5 - row[label] + new) for new in sorted(row[known:], reverse=True)[:negatives]]
    assert float(losses.margin_ranking(NOW, LABELS, known, 0.5, negatives)) == pytest.approx(np.mean(terms))


def test_without_old_samples_there_is_nothing_to_rank() -> None:
    now = NOW.clone().requires_grad_()
    loss = losses.margin_ranking(now, torch.full((6,), 4), 3, 0.5, 2)
    assert float(loss.detach()) == 0
    assert not torch.autograd.grad(loss, now)[0].any()


def test_herding_is_brute_force_one_at_a_time() -> None:
    rows = F.numpy() / np.linalg.norm(F.numpy(), axis=1, keepdims=True)
    mean, chosen = rows.mean(0), []
    for _ in range(4):
        gaps = {i: np.linalg.norm(mean - rows[[*chosen, i]].mean(0)) for i in range(6) if i not in chosen}
        chosen.append(min(gaps, key=gaps.__getitem__))
    assert herd(F, 4).tolist() == chosen
    assert sorted(herd(F, 99).tolist()) == list(range(6))
    for order in permutations(range(6), 1):  # the first one is the best of all single ones
        assert np.linalg.norm(mean - rows[chosen[0]]) <= np.linalg.norm(mean - rows[order[0]]) + 1e-12


def test_heads_grow_without_touching_old_rows() -> None:
    features = F.float()
    for head in (LinearHead(7), CosineHead(7)):
        generator = torch.Generator().manual_seed(0)
        head.grow(3, generator)
        before = head(features)
        head.grow(2, generator)
        after = head(features)
        assert after.shape == (6, 5)
        assert torch.equal(after[:, :3], before) or torch.allclose(after[:, :3], before, atol=1e-6)
        assert head.groups == [3, 2]
    cosines = after / head.scale
    weights = head.all_weights().detach().numpy()
    expected = (
        features.numpy() @ weights.T / np.linalg.norm(features, axis=1)[:, None] / np.linalg.norm(weights, axis=1)
    )
    np.testing.assert_allclose(cosines.detach(), expected, atol=1e-6)


def test_imprinted_rows_have_the_direction_of_their_class_and_the_length_of_old_ones() -> None:
    head, generator = CosineHead(7), torch.Generator().manual_seed(0)
    head.grow(3, generator)
    head.grow(2, generator)
    old = head.weights[0].detach()
    head.imprint(torch.nn.functional.normalize(F[:2].float()))
    new = head.weights[1].detach()
    torch.testing.assert_close(new.norm(dim=1), old.norm(dim=1).mean().expand(2))
    torch.testing.assert_close(torch.nn.functional.cosine_similarity(new, F[:2].float()), torch.ones(2))


def test_herding_takes_no_row_twice_and_any_number_of_them() -> None:
    """The first row is the direction of the mean: taken again, it would be nearer than the other two."""
    rows = torch.tensor([[1.0, 0.0], [0.5, 0.8], [0.5, -0.8]])
    assert herd(rows, 2)[0] == 0
    assert sorted(herd(rows, 3).tolist()) == [0, 1, 2]
    assert herd(rows[:1], 2).tolist() == [0]
    assert herd(rows, 0).dtype == torch.int64


def test_an_empty_memory_and_limits_that_both_apply() -> None:
    memory = Exemplars(5, budget=0)
    memory.cut(1)
    assert (len(memory), memory.nbytes) == (0, 0)
    assert Exemplars(5, budget=100).allowed(2, 10) == 5
    assert Exemplars(5, budget=60).allowed(2, 10) == 3
    assert Exemplars(5).allowed(2, 10) == 5
    pixels, labels = torch.zeros(2, 1, 2, 2, dtype=torch.uint8), torch.tensor([0, 1])
    with pytest.raises(InputError, match="expected float32 images"):
        LearnedImages(pixels, labels)
    with pytest.raises(InputError, match="expected float32 images"):
        LearnedImages(pixels.float(), labels[:1])
    plain = Exemplars(None)
    plain.add(ImageData(pixels, labels), 2)
    assert plain.data is not None
    assert plain.data.images.dtype == torch.uint8


def test_a_memory_that_shrinks_keeps_the_most_important_images() -> None:
    memory = Exemplars(None)
    images = torch.arange(7, dtype=torch.uint8).view(7, 1, 1, 1)
    memory.add(ImageData(images, torch.tensor([1, 0, 1, 0, 0, 1, 1])), 2)
    memory.cut(2)  # of class 0: images 1, 3, 4, the most important first; of class 1: 0, 2, 5, 6
    assert memory.data is not None
    assert memory.data.images.flatten().tolist() == [1, 3, 0, 2]
    assert memory.data.labels.tolist() == [0, 0, 1, 1]


def test_a_budget_counts_the_bytes_of_learned_pixels() -> None:
    images, labels = torch.zeros(8, 1, 2, 2, dtype=torch.uint8), torch.arange(8) % 2
    for learned, each in ((False, 4), (True, 1)):
        memory = Exemplars(None, budget=32, learned=learned)
        memory.add(ImageData(images, labels), 2)
        assert memory.nbytes == 32
        assert memory.data is not None
        assert torch.bincount(memory.data.labels).tolist() == [each, each]


def test_lwf_has_the_weight_of_pycil() -> None:
    """CE over the new classes + 3 KD, with the temperature 2."""
    logits, old = torch.tensor([[1.0, 3.0, 0.5, 0.0]]), torch.tensor([[2.0, 0.0]])
    target, said = (np.exp(row) / np.exp(row).sum() for row in (np.array([1.0, 0.0]), np.array([0.5, 1.5])))
    kept = -(target * np.log(said)).sum()
    new = -np.log(np.exp(0.5) / (np.exp(0.5) + 1))
    nothing = torch.zeros(1, 1)
    loss = LwF().loss(Output(logits, nothing, ()), Output(old, nothing, ()), torch.tensor([2]), 2)
    assert float(loss) == pytest.approx(new + 3 * kept, rel=1e-6)


def test_a_memory_refuses_less_than_nothing() -> None:
    with pytest.raises(InputError, match="0 or more"):
        Exemplars(-1)


def test_parts_are_read_as_one() -> None:
    images = torch.arange(10, dtype=torch.uint8).view(10, 1, 1, 1)
    parts = [ImageData(images[:6], torch.arange(6)), ImageData(images[6:], torch.arange(6, 10))]
    apart = JoinedSamples(tuple(parts), torch.arange(10))
    order = torch.tensor([9, 0, 6, 5, 2, 7])
    for samples in (apart, joined(parts)):
        found = list(samples.batches(4, order))
        assert [x.flatten().tolist() for x, _ in found] == [[9, 0, 6, 5], [2, 7]]
        assert [y.tolist() for _, y in found] == [[9, 0, 6, 5], [2, 7]]
        assert sum(len(y) for _, y in samples.batches(4)) == 10
    some = apart.take(torch.tensor([7, 1, 8]))
    assert some.labels.tolist() == [1, 7, 8]
    assert torch.cat([x for x, _ in some.batches(2)]).flatten().tolist() == [1, 7, 8]
