"""A network that trains in milliseconds, and images of ten characters for it."""

from collections.abc import Callable, Iterator

import pytest
import torch

from dsal.backbones import Backbone, Card
from dsal.backbones.backbone import ARCHITECTURES
from dsal.backbones.resnet import ResNet
from dsal.data import ImageData, load_dataset
from dsal.methods import METHODS, Phase
from dsal.methods.checks import learn
from dsal.methods.network.kit.network_method import NetworkMethod

Make = Callable[..., NetworkMethod]


@pytest.fixture(scope="session", autouse=True)
def _tiny() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(ARCHITECTURES._entries, "tiny", lambda c: ResNet((1, 1), (8, 16), stem="7x7", in_channels=c))
        yield


def _characters(part: ImageData) -> ImageData:
    """Ten characters of different alphabets."""
    some = part.take(torch.nonzero((part.labels % 97 == 0) & (part.labels < 970)).flatten())
    return some.relabel(some.labels // 97)


@pytest.fixture(scope="session")
def train() -> ImageData:
    return _characters(load_dataset("omniglot").train)


@pytest.fixture(scope="session")
def test() -> ImageData:
    return _characters(load_dataset("omniglot").test)


@pytest.fixture
def three(train: ImageData) -> list[Phase]:
    """Four classes, two and two."""
    groups = [range(4), range(4, 6), range(6, 8)]
    rows = [torch.nonzero(torch.isin(train.labels, torch.tensor(group))).flatten() for group in groups]
    return [Phase(k, group, train.take(some)) for k, (group, some) in enumerate(zip(groups, rows, strict=True))]


@pytest.fixture
def trained() -> Make:
    """Return a function (name of the method, phases, options) that gives a small method that has learned the phases."""

    def make(name: str, phases: list[Phase], **options: object) -> NetworkMethod:
        small = {"architecture": "tiny", "epochs": 2, "base_epochs": 2, "batch_size": 32, "lr": 0.05, "mirror": False}
        method = METHODS.get(name)(**{**small, "device": "cpu", "precision": "float32", **options})
        assert isinstance(method, NetworkMethod)
        for phase in phases:
            learn(method, phase)
        return method

    return make


@pytest.fixture
def backbone() -> Backbone:
    """A network that was given: four outputs."""
    card = Card(
        architecture="tiny",
        dataset="omniglot",
        seen_classes=(0, 1, 2, 3),
        class_order="natural",
        in_channels=1,
        size=28,
        mean=(0.9,),
        std=(0.3,),
    )
    torch.manual_seed(1)
    return Backbone(card, head=torch.nn.Linear(16, 4)).eval()
