"""The residual networks: sizes, shapes, names of parameters."""

from __future__ import annotations

import pytest
import torch

from dsal.backbones import ARCHITECTURES
from dsal.backbones.resnet import ResNet

# Known sizes less the classifier: 464,154 with 10 outputs for ResNet-32, 11,689,512 with 1,000 for ResNet-18.
PARAMETERS = {"resnet32": 463_504, "resnet18": 11_176_512, "resnet18-32": 11_168_832, "resnet18-64": 11_168_832}


def network(name: str) -> ResNet:
    made = ARCHITECTURES.get(name)(3)
    assert isinstance(made, ResNet)
    return made


@pytest.mark.parametrize(("name", "count"), PARAMETERS.items())
def test_number_of_parameters(name: str, count: int) -> None:
    assert sum(p.numel() for p in network(name).parameters()) == count


@pytest.mark.parametrize(
    ("name", "side"), [("resnet32", 32), ("resnet18-32", 32), ("resnet18-64", 64), ("resnet18", 224)]
)
def test_maps_by_depth(name: str, side: int) -> None:
    net, images = network(name).eval(), torch.randn(2, 3, side, side)
    with torch.no_grad():
        maps = dict(net.maps(images))
        output = net(images)
    depth, widths = (5, (16, 32, 64)) if name == "resnet32" else (2, (64, 128, 256, 512))
    first = 56 if side == 224 else 32
    expected = {"stem": (2, widths[0], first, first)}
    for number, width in enumerate(widths):
        for index in range(depth):
            expected[f"layer{number + 1}.{index}"] = (2, width, first >> number, first >> number)
    assert list(net.channels) == list(maps)
    assert {name: tuple(values.shape) for name, values in maps.items()} == expected
    assert net.channels == {name: shape[1] for name, shape in expected.items()}
    assert net.stage_ends == tuple(f"layer{number + 1}.{depth - 1}" for number in range(len(widths)))
    torch.testing.assert_close(output, maps[net.stage_ends[-1]].mean((2, 3)))


def torchvision_resnet18_names() -> set[str]:
    """Names in torchvision's ResNet-18 checkpoints, written down by their rule, less the classifier."""
    norm = ("weight", "bias", "running_mean", "running_var", "num_batches_tracked")
    names = {"conv1.weight", *(f"bn1.{part}" for part in norm)}
    for layer in (1, 2, 3, 4):
        for block in (0, 1):
            at = f"layer{layer}.{block}"
            for number in (1, 2):
                names |= {f"{at}.conv{number}.weight", *(f"{at}.bn{number}.{part}" for part in norm)}
            if layer > 1 and block == 0:
                names |= {f"{at}.downsample.0.weight", *(f"{at}.downsample.1.{part}" for part in norm)}
    return names


def test_resnet18_has_the_names_of_torchvision() -> None:
    net = network("resnet18")
    assert set(net.state_dict()) == torchvision_resnet18_names()
    assert len(torchvision_resnet18_names()) == 120  # 122 entries in the published file, two of them fc


def test_resnet18_loads_a_checkpoint_of_torchvision_strictly() -> None:
    try:
        from torchvision.models import resnet18
    except (ImportError, RuntimeError) as error:  # its wheel does not import beside every build of torch
        pytest.skip(f"torchvision cannot be imported: {error}")
    theirs = resnet18(weights=None).eval()
    ours = network("resnet18").eval()
    state = {name: value for name, value in theirs.state_dict().items() if not name.startswith("fc.")}
    ours.load_state_dict(state, strict=True)
    theirs.fc = torch.nn.Identity()
    images = torch.randn(2, 3, 224, 224)
    with torch.no_grad():
        torch.testing.assert_close(ours(images), theirs(images))
