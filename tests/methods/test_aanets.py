"""AANets: a stable network alone is the frozen one; only what may learn does; weights follow the balanced loss."""

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from dsal.backbones.resnet import ResNet
from dsal.data import ImageData
from dsal.errors import InputError
from dsal.methods import Phase
from dsal.methods.network.aanets import AggregatedBody, Aggregation, ScaledConv2d

X = torch.randn(3, 1, 28, 28, generator=torch.Generator().manual_seed(0))


def body() -> ResNet:
    torch.manual_seed(0)
    made = ResNet((2, 1), (4, 8), stem="3x3", in_channels=1)
    for module in made.modules():
        if isinstance(module, nn.BatchNorm2d):
            nn.init.uniform_(module.running_mean, -1, 1)
    return made.eval()


def ends(network: nn.Module) -> list[Tensor]:
    with torch.no_grad():
        return [image for name, image in network.maps(X) if name in network.stage_ends]  # type: ignore[operator]


@pytest.mark.parametrize("stable", ["scaled", "fixed", "free"])
def test_two_copies_of_a_network_are_that_network_and_one_alone_is_it_whatever_the_other_does(stable: str) -> None:
    expected = ends(body())
    both = AggregatedBody(body(), stable).eval()  # type: ignore[arg-type]
    for now, before in zip(ends(both), expected, strict=True):
        torch.testing.assert_close(now, before)
    for alone in (1.0, 0.0):
        both = AggregatedBody(body(), stable).eval()  # type: ignore[arg-type]
        other = both.plastic if alone else both.stable
        for parameter in other.parameters():
            nn.init.normal_(parameter)
        both.weights.fill_(alone)
        for now, before in zip(ends(both), expected, strict=True):
            torch.testing.assert_close(now, before)


def test_maps_are_mixed_at_the_end_of_every_stage() -> None:
    both = AggregatedBody(body(), "free").eval()
    for parameter in both.plastic.parameters():
        nn.init.normal_(parameter, std=0.2)
    both.weights.copy_(torch.tensor([0.3, 0.8]))
    s, p = both.stable, both.plastic
    with torch.no_grad():
        first = 0.3 * s.layer1(s.stem(X)) + 0.7 * p.layer1(p.stem(X))
        second = 0.8 * s.layer2(first) + 0.2 * p.layer2(first)
    for now, expected in zip(ends(both), (first, second), strict=True):
        torch.testing.assert_close(now, expected)


def test_a_scaled_convolution_multiplies_whole_kernels() -> None:
    conv = nn.Conv2d(2, 3, 3, stride=2, padding=1, bias=False)
    scaled = ScaledConv2d(conv)
    x = torch.randn(2, 2, 7, 7)
    torch.testing.assert_close(scaled(x), conv(x))
    with torch.no_grad():
        scaled.scale[1, 0] = 3
        conv.weight[1, 0] *= 3
    torch.testing.assert_close(scaled(x), conv(x))
    assert [name for name, _ in scaled.named_parameters()] == ["scale"]


def test_other_networks_are_refused() -> None:
    with pytest.raises(InputError, match="residual network"):
        AggregatedBody(nn.Linear(2, 2), "fixed")


@pytest.mark.parametrize("name", ["lucir-aanets", "podnet-aanets"])
@pytest.mark.parametrize("stable", ["scaled", "fixed"])
def test_the_stable_network_keeps_its_kernels(trained: object, three: list[Phase], name: str, stable: str) -> None:
    more = {"tune_epochs": 1, "proxies": 2} if name.startswith("podnet") else {}
    method = trained(name, three[:1], stable=stable, **more)  # type: ignore[operator]
    before = {key: value.clone() for key, value in method.network.body.state_dict().items()}
    for phase in three[1:]:
        for _ in method.learn(phase):
            pass
    now, plastic = (part.state_dict() for part in (method.network.body.stable, method.network.body.plastic))
    moved = {key for key in before if not torch.equal(before[key], now[key])}
    assert not moved if stable == "fixed" else moved and not any("conv" in key for key in moved)
    assert not any(torch.equal(before[key], plastic[key]) for key in before if "conv" in key)


def test_aggregation_weights_go_down_the_slope_of_the_balanced_loss(
    trained: object, three: list[Phase], test: ImageData
) -> None:
    still = trained("lucir-aanets", three[:2], aggregation_lr=0.0)  # type: ignore[operator]
    assert still.network.body.weights.tolist() == [0.5, 0.5]
    alone = trained("lucir", three[:2])  # type: ignore[operator]
    assert (alone.scores(test) != still.scores(test)).any()

    method = trained("lucir-aanets", three[:1], aggregation_lr=0.01, exemplars_per_class=3)  # type: ignore[operator]
    next(iter(method.learn(three[1])))  # the network has grown
    aggregation = method.part(Aggregation)
    balanced = aggregation.balanced(three[1])
    assert torch.bincount(balanced.labels).tolist() == [3] * 6
    network = method.network.eval()
    for parameter in network.body.plastic.parameters():
        parameter.data.mul_(1.1)  # so that it matters which network is asked

    @torch.no_grad()
    def loss(weights: Tensor) -> float:
        network.body.weights = weights
        images, labels = next(balanced.batches(100))
        return float(functional.cross_entropy(network(network.normalise(images)).logits, labels))

    half, step = torch.full((2,), 0.5), 0.02
    slopes = [(loss(half + step * e) - loss(half - step * e)) / (2 * step) for e in torch.eye(2)]
    loss(half)
    aggregation.end_epoch(three[1], 0)
    expected = 0.5 - 0.01 * np.array(slopes)
    np.testing.assert_allclose(network.body.weights, expected, atol=1e-5)
    assert abs(np.array(slopes)).max() > 1e-3
