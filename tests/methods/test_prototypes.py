"""PASS, IL2A and SSRE: each formula written out, and what is left of a method when a part of it is gone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import numpy as np
import pytest
import torch
from torch import Generator, nn
from torch.nn import functional

from dsal.backbones import Backbone
from dsal.backbones.resnet import ResNet
from dsal.data import ImageData
from dsal.errors import InputError
from dsal.methods import Phase
from dsal.methods.checks import learn
from dsal.methods.network.il2a import IL2A, Pairs, SpreadPrototypes, pair_number
from dsal.methods.network.kit import losses
from dsal.methods.network.kit.growing_network import Output
from dsal.methods.network.kit.prototypes import PrototypeMethod, Prototypes, covariance
from dsal.methods.network.pass_ import PASS, NoisyPrototypes
from dsal.methods.network.ssre import SSRE, adapted, add_adapters_
from dsal.training.fit import Batch

RANDOM = np.random.RandomState(0)
F, F_OLD, P = (torch.from_numpy(RANDOM.standard_normal((n, 7))) for n in (6, 6, 3))
NAMES = ("pass", "il2a", "ssre")
Trained = Callable[..., PrototypeMethod]


def gentle(name: str) -> dict[str, object]:
    return {"lr": 0.003, "epochs": 1, "base_epochs": 1, **({"base_lr": 0.003} if name == "ssre" else {})}


def batch_of(data: ImageData, seed: int = 0) -> Batch:
    return Batch(data.images, data.labels, slice(0, None, 1), 0.0, Generator().manual_seed(seed))


# Formulas.


def test_the_distance_of_features_is_that_of_the_whole_batch() -> None:
    assert float(losses.frobenius(F, F_OLD)) == pytest.approx(np.sqrt(((F - F_OLD).numpy() ** 2).sum()))


def test_features_that_have_not_moved_pull_nowhere() -> None:
    moved = F.clone().requires_grad_()
    loss = losses.frobenius(moved, F) + (moved - F).norm(dim=1).sum()
    assert float(loss.detach()) == 0
    assert not torch.autograd.grad(loss, moved)[0].any()


def test_likeness_is_the_largest_cosine() -> None:
    expected = [max(f @ p / np.linalg.norm(f) / np.linalg.norm(p) for p in P.numpy()) for f in F.numpy()]
    np.testing.assert_allclose(losses.nearest_prototype(F, P), expected)


def test_a_covariance_is_that_of_numpy_and_one_row_has_none() -> None:
    np.testing.assert_allclose(covariance(F), np.cov(F.numpy().T), atol=1e-12)
    assert not covariance(F[:1]).any()


def test_implicit_augmentation_written_out() -> None:
    weights, labels = RANDOM.standard_normal((4, 7)), [2, 0, 3]
    spread = np.stack([np.cov(RANDOM.standard_normal((9, 7)).T) for _ in labels])
    logits = P.numpy() @ weights.T
    expected = [
        [o + 2.5 / 2 * (weights[j] - weights[y]) @ s @ (weights[j] - weights[y]) for j, o in enumerate(row)]
        for row, y, s in zip(logits, labels, spread, strict=True)
    ]
    args = (torch.from_numpy(logits), torch.from_numpy(weights), torch.tensor(labels))
    found = losses.implicit_augmentation(*args, torch.from_numpy(spread), 2.5)
    np.testing.assert_allclose(found, expected)
    nothing = losses.implicit_augmentation(*args, torch.zeros(3, 7, 7).double(), 2.5)
    assert torch.equal(nothing, args[0])  # plain prototypes


def test_implicit_augmentation_is_what_many_draws_come_to() -> None:
    """E[exp((w_j - w_y) e)] for normal e has the logarithm that is added to the score of class j."""
    weights, spread = torch.randn(4, 3, generator=Generator().manual_seed(1)).double() / 3, torch.eye(3).double()[None]
    draws = torch.randn(200_000, 3, generator=Generator().manual_seed(2)).double()
    added = losses.implicit_augmentation(torch.zeros(1, 4).double(), weights, torch.tensor([1]), spread, 1.0)[0]
    np.testing.assert_allclose(added, (draws @ (weights - weights[1]).T).exp().mean(0).log(), atol=0.01)


def test_every_pair_has_a_number_of_its_own() -> None:
    pairs = [(a, b) for a in range(5) for b in range(a + 1, 5)]
    one, other = torch.tensor(pairs).T
    assert pair_number(one, other, 5).tolist() == pair_number(other, one, 5).tolist() == list(range(10))


# Methods.


@pytest.mark.parametrize("name", NAMES)
def test_prototypes_are_the_mean_features_at_the_end_of_their_phase(
    name: str, trained: Trained, three: list[Phase]
) -> None:
    method, expected = trained(name, [], **gentle(name)), []
    for phase in three:
        learn(method, phase)
        rows = method.features_of(phase.samples)
        expected += [rows[phase.samples.labels == label].mean(0) for label in phase.classes]
    torch.testing.assert_close(method.prototypes, torch.stack(expected))


@pytest.mark.parametrize("name", ["pass", "il2a"])
def test_without_replay_and_distillation_no_old_class_has_a_say(
    name: str, trained: Trained, three: list[Phase], test: ImageData
) -> None:
    """Prototypes and the network before the phase are then free to be anything."""
    options = {**gentle(name), "replay": 0.0, "distil": 0.0}
    one, other = (trained(name, three[:1], **options) for _ in range(2))
    other.part(Prototypes).means = torch.randn_like(other.prototypes)
    for method in (one, other):
        learn(method, three[1])
    np.testing.assert_array_equal(one.scores(test), other.scores(test))
    whole = trained(name, three[:2], **gentle(name))
    assert (whole.scores(test) != one.scores(test)).any()


@pytest.mark.parametrize("name", ["pass", "il2a"])
def test_the_loss_of_a_batch_written_out(name: str, trained: Trained, three: list[Phase]) -> None:
    method = trained(name, three[:1], **gentle(name))
    steps = iter(method.learn(three[1]))
    next(steps)  # the network has grown
    method.network.eval()
    batch, n = batch_of(cast(ImageData, three[1].samples)), len(three[1].samples)
    module = method.network if name == "pass" else method.part(Pairs).paired
    assert module is not None
    forward = cast(Any, module)
    loss, hits = method.batch_loss(forward, batch, 4)
    again = batch_of(cast(ImageData, three[1].samples))
    x, labels = method.inputs_of(again)
    drawn = torch.randint(4, (n,), generator=again.generator)
    head, near = method.network.head, method.prototypes[drawn]
    if name == "pass":
        assert len(x) == 4 * n
        radius = method.part(NoisyPrototypes).radius
        near = near + radius * torch.randn(near.shape, generator=again.generator)
        replayed = functional.cross_entropy(head(near) / 0.1, 4 * drawn)
    else:
        cov, w = method.part(SpreadPrototypes).covariances, head.all_weights()
        q = torch.stack(
            [
                torch.stack([head(p[None])[0, j] + 1.25 * (w[j] - w[c]) @ cov[c] @ (w[j] - w[c]) for j in range(6)])
                for p, c in zip(near, drawn, strict=True)
            ]
        )
        replayed = functional.cross_entropy(q / 0.1, drawn)
    assert method.teacher is not None
    moved = (method.network(x).features - method.teacher(x).features).square().sum().sqrt()
    expected = functional.cross_entropy(forward(x).logits / 0.1, labels) + 10 * replayed + 10 * moved
    assert float(loss.detach()) == pytest.approx(float(expected.detach()), rel=1e-5)
    assert 0 <= hits <= n


def test_pass_turns_images_and_answers_by_the_outputs_of_unturned_ones(
    trained: Trained, three: list[Phase], test: ImageData
) -> None:
    method = cast(PASS, trained("pass", three[:2], **gentle("pass")))
    data = three[1].samples.take(torch.tensor([0, 20]))
    x, labels = method.inputs_of(batch_of(cast(ImageData, data)))
    plain = method.network.normalise(cast(ImageData, data).images)
    for turn in range(4):
        for row in range(2):
            assert torch.equal(x[2 * turn + row], plain[row].rot90(turn, (1, 2)))
            assert labels[2 * turn + row] == 4 * data.labels[row] + turn
    logits = method.network.eval()(method.network.normalise(test.images)).logits
    assert logits.shape[1] == 24
    np.testing.assert_array_equal(method.scores(test), logits[:, [0, 4, 8, 12, 16, 20]].detach())
    wide = ImageData(torch.zeros(4, 1, 28, 32, dtype=torch.uint8), torch.tensor([6, 6, 7, 7]))
    with pytest.raises(InputError, match="must be square, got 28 x 32"):
        learn(method, Phase(2, range(6, 8), wide))
    assert method.network.head.classes == 6


def test_pass_measures_its_radius_once_and_without_one_replays_the_bare_prototypes(
    trained: Trained, three: list[Phase]
) -> None:
    method = cast(PASS, trained("pass", three[:1], **gentle("pass")))
    rows = method.features_of(three[0].samples).double().numpy()
    labels = three[0].samples.labels.numpy()
    variances = [np.trace(np.cov(rows[labels == c].T)) / rows.shape[1] for c in range(4)]
    noise = method.part(NoisyPrototypes)
    assert float(noise.radius) == pytest.approx(np.sqrt(np.mean(variances)), rel=1e-4)
    before = noise.radius.clone()
    learn(method, three[1])
    assert torch.equal(noise.radius, before)
    drawn, generator = torch.tensor([0, 3, 3]), Generator().manual_seed(0)
    bare = functional.cross_entropy(method.network.head(method.prototypes[drawn]) / 0.1, 4 * drawn)
    assert not torch.equal(method.replayed(drawn, generator), bare)
    noise.radius.zero_()
    assert torch.equal(method.replayed(drawn, generator), bare)


def test_il2a_blends_two_classes_into_an_output_of_their_own(trained: Trained, three: list[Phase]) -> None:
    method = cast(IL2A, trained("il2a", three[:1], **gentle("il2a")))
    next(iter(method.learn(three[1])))
    data = cast(ImageData, three[1].samples.take(torch.tensor([0, 20])))
    x, labels = method.inputs_of(batch_of(data))
    one, other = plain = method.network.normalise(data.images)
    assert torch.equal(x[:2], plain)
    assert 2 < len(x) <= 10  # in some of the four rounds an image meets itself
    assert set(labels[2:].tolist()) == {6}  # six classes, and then the one pair of the two new ones
    for blend in x[2:]:
        share = float(((blend - other) * (one - other)).sum() / (one - other).square().sum())
        assert 0.4 <= share <= 0.6
        torch.testing.assert_close(blend, share * one + (1 - share) * other)
    paired = method.part(Pairs).paired
    assert paired is not None
    assert paired.pairs.classes == 1


def test_il2a_has_nothing_to_blend_where_a_phase_has_one_class(trained: Trained, train: ImageData) -> None:
    parts = [Phase(k, [k], train.take(torch.nonzero(train.labels == k).flatten())) for k in range(2)]
    method = cast(IL2A, trained("il2a", parts[:1], **gentle("il2a")))
    next(iter(method.learn(parts[1])))
    data = cast(ImageData, parts[1].samples)
    x, labels = method.inputs_of(batch_of(data))
    assert torch.equal(x, method.network.normalise(data.images))
    assert torch.equal(labels, data.labels)


def test_il2a_keeps_the_covariance_of_each_class_under_its_number(trained: Trained, three: list[Phase]) -> None:
    method = cast(IL2A, trained("il2a", three, **gentle("il2a")))
    rows, labels = method.features_of(three[2].samples), three[2].samples.labels
    covariances = method.part(SpreadPrototypes).covariances
    assert covariances.shape == (8, 16, 16)
    for label in (6, 7):
        torch.testing.assert_close(covariances[label], covariance(rows[labels == label]))
    assert method.part(Pairs).paired is None
    assert not any("pairs" in name for name in method.state().arrays)


@pytest.mark.parametrize("zero_pad", [True, False])
def test_ssre_folds_batch_normalisation_and_adapters_into_the_network(zero_pad: bool) -> None:
    torch.manual_seed(0)
    body = ResNet((1, 1), (4, 8), stem="3x3", in_channels=1, zero_pad=zero_pad)
    for module in body.modules():
        if isinstance(module, nn.BatchNorm2d):
            nn.init.normal_(module.weight)
            nn.init.normal_(module.bias)
            nn.init.normal_(module.running_mean)
            module.running_var.uniform_(0.5, 2)
    x = torch.randn(3, 1, 12, 12)
    before = body.eval()(x)
    add_adapters_(body)
    torch.testing.assert_close(body(x), before, atol=1e-5, rtol=1e-5)
    assert torch.equal(body.train()(x), body.eval()(x))  # nothing in it counts batches any more
    assert len(adapted(body)) == 4
    for conv in adapted(body):
        nn.init.normal_(conv.adapter, std=0.1)
    conv, maps = adapted(body)[2], torch.randn(2, 4, 7, 7)
    beside = conv.conv(maps) + functional.conv2d(maps, conv.adapter, stride=conv.conv.stride)
    torch.testing.assert_close(conv(maps), beside)
    changed = body(x)
    assert not torch.allclose(changed, before, atol=1e-3)
    for conv in adapted(body):
        conv.fold_()
        assert not conv.adapter.any()
    torch.testing.assert_close(body(x), changed)


def test_ssre_trains_adapters_and_head_alone(trained: Trained, three: list[Phase]) -> None:
    method = cast(SSRE, trained("ssre", three[:2], **gentle("ssre")))
    next(iter(method.learn(three[2])))
    trainable = {name for name, own in method.network.named_parameters() if own.requires_grad}
    assert all("adapter" in name or name.startswith("head.") for name in trainable)
    assert sum("adapter" in name for name in trainable) == 4
    assert all(conv.adapter.any() for conv in adapted(method.network.body))
    done = trained("ssre", three, **gentle("ssre"))
    assert not any(conv.adapter.any() for conv in adapted(done.network.body))


def test_ssre_the_loss_of_some_images_written_out(trained: Trained, three: list[Phase]) -> None:
    method = cast(SSRE, trained("ssre", three[:1], **gentle("ssre")))
    method.part(Prototypes).means = P.float()
    now, old = Output(torch.randn(6, 5), F.float(), ()), Output(torch.randn(6, 3), F_OLD.float(), ())
    labels = torch.tensor([3, 4, 4, 3, 3, 4])
    s = losses.nearest_prototype(F, P).numpy()
    entropy = functional.cross_entropy(now.logits / 0.1, labels, reduction="none").numpy()
    moved = np.linalg.norm((F - F_OLD).numpy(), axis=1)
    expected = ((1 - s) * entropy).mean() + (s * moved).sum()
    assert float(method.loss(now, old, labels, 3)) == pytest.approx(expected, rel=1e-5)
    still = method.loss(now, Output(old.logits, now.features, ()), labels, 3)
    assert float(still) == pytest.approx(((1 - s) * entropy).mean(), rel=1e-5)


@pytest.mark.parametrize("name", NAMES)
def test_a_network_that_is_given_begins_as_it_is(
    name: str, backbone: Backbone, trained: Trained, three: list[Phase], test: ImageData
) -> None:
    method = trained(name, [], **gentle(name), adapt_epochs=0)
    method.start(backbone)
    learn(method, three[0])
    torch.testing.assert_close(torch.from_numpy(method.scores(test)) / 0.1, backbone.classify(test.images))


@pytest.mark.parametrize(("name", "epochs"), [("pass", 3), ("il2a", 3), ("ssre", 0)])
def test_a_network_that_is_given_is_adapted_where_labels_are_new(
    name: str, epochs: int, backbone: Backbone, trained: Trained, three: list[Phase]
) -> None:
    method = trained(name, [], **gentle(name), adapt_epochs=3)
    method.start(backbone)
    assert sum(1 for _ in method.learn(three[0])) == epochs * (60 // 32)
