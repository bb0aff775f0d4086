"""Pretrained backbones by name: torchvision's and timm's where they import, and torchvision's file without it."""

from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest
import torch

from dsal.backbones import Backbone, Card
from dsal.backbones.pretrained import _timm, _torchvision, empty_backbone, open_backbone
from dsal.errors import FileFormatError, UnknownNameError


def package(name: str) -> ModuleType:
    """An optional package; a torchvision built for another torch does not import, and not by an ImportError."""
    try:
        return import_module(name)
    except (ImportError, RuntimeError) as error:
        pytest.skip(f"{name} does not import: {error}")


def image(side: int) -> torch.Tensor:
    return torch.randint(0, 256, (1, 3, side, side), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))


def generic_resnet18() -> Backbone:
    card = Card(
        architecture="resnet18",
        dataset=None,
        seen_classes=None,
        class_order="natural",
        in_channels=3,
        size=224,
        mean=(0.485, 0.456, 0.406),
        std=(0.229, 0.224, 0.225),
    )
    torch.manual_seed(0)
    return Backbone(card).eval()


def test_a_checkpoint_of_torchvision_without_torchvision(tmp_path: Path) -> None:
    expected = generic_resnet18()
    state = {**expected.network.state_dict(), "fc.weight": torch.zeros(1000, 512), "fc.bias": torch.zeros(1000)}
    torch.save(state, tmp_path / "resnet18.pth")
    found = open_backbone(str(tmp_path / "resnet18.pth"))
    assert found.card == expected.card  # so reports call it generic: it has seen all of ImageNet
    assert found.fingerprint() == expected.fingerprint()
    del state["layer4.1.bn2.weight"]
    torch.save(state, tmp_path / "resnet18.pth")
    with pytest.raises(FileFormatError, match=r"layer4\.1\.bn2\.weight"):
        open_backbone(str(tmp_path / "resnet18.pth"))
    (tmp_path / "resnet18.pth").write_bytes(b"not a checkpoint")
    with pytest.raises(FileFormatError, match="not torchvision's checkpoint"):
        open_backbone(str(tmp_path / "resnet18.pth"))


def test_shipped_weights_and_files_that_are_not_there() -> None:
    assert open_backbone("omniglot-resnet32").card.dataset == "omniglot"
    with pytest.raises(FileNotFoundError):
        open_backbone("nowhere.safetensors")


def test_the_layer_that_is_dropped_is_that_of_the_classes() -> None:
    torchvision = package("torchvision")
    expected, made = torchvision.models.resnet18(), _torchvision("resnet18", pretrained=False)
    expected.load_state_dict({**expected.state_dict(), **made.network.module.state_dict()})
    expected.fc = torch.nn.Identity()
    torch.testing.assert_close(made.extract(image(224)), expected.eval()(made.normalise(image(224))))


@pytest.mark.parametrize(
    ("name", "width"),
    [("squeezenet1_1", 512), ("convnext_tiny", 768), ("vit_b_16", 768)],
)
def test_torchvision_models(name: str, width: int) -> None:
    package("torchvision")
    made = _torchvision(name, pretrained=False)
    assert made.widths == {"last": width, "stages": width}
    assert made.card.size == 224
    again = empty_backbone(made.card)
    again.load_state_dict(made.state_dict())
    torch.testing.assert_close(again.extract(image(224)), made.extract(image(224)))


def test_unknown_torchvision_model() -> None:
    package("torchvision")
    with pytest.raises(UnknownNameError, match="did you mean 'resnet50'"):
        open_backbone("torchvision:resnet5")


def test_timm_models() -> None:
    package("timm")
    made = _timm("resnet18", pretrained=False)
    assert made.widths["last"] == 512
    again = empty_backbone(made.card)
    again.load_state_dict(made.state_dict())
    torch.testing.assert_close(again.extract(image(made.card.size)), made.extract(image(made.card.size)))
    with pytest.raises(UnknownNameError, match="timm model"):
        open_backbone("timm:resnet1234567")
