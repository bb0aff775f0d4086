"""Image encoders of ``transformers`` and ``open_clip``: images to features or tokens, with their preprocessing.

Names: ``transformers:NAME``, of the hub or a local folder; ``open_clip:ARCHITECTURE/TAG``, or without a tag for random
weights.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from torch import Tensor, nn

from dsal.errors import InputError


class Encoder(NamedTuple):
    """A module with the size, mean and standard deviation of its images."""

    module: nn.Module
    size: int
    mean: tuple[float, ...]
    std: tuple[float, ...]


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


def transformers_encoder(package: Any, name: str, *, pretrained: bool) -> Encoder:
    """Return an image model of transformers; of a model of images and text, its image part."""
    try:
        config = package.AutoConfig.from_pretrained(name)
        seen = package.AutoImageProcessor.from_pretrained(name, use_fast=False)
        model = package.AutoModel.from_pretrained(name) if pretrained else package.AutoModel.from_config(config)
    except (OSError, ValueError) as error:
        raise InputError(f"transformers has no image model {name!r}: {error}") from error
    model = getattr(model, "vision_model", model)
    sides = getattr(seen, "crop_size", None) or seen.size
    side = sides if isinstance(sides, int) else sides.get("height") or sides.get("shortest_edge")
    return Encoder(_Pooled(model), int(side), tuple(seen.image_mean), tuple(seen.image_std))


def open_clip_encoder(package: Any, name: str, *, pretrained: bool) -> Encoder:
    """Return the image part of a CLIP model of open_clip."""
    architecture, _, tag = name.partition("/")
    if architecture not in package.list_models():
        raise InputError(f"open_clip has no model {architecture!r}: see open_clip.list_models()")
    visual = package.create_model(architecture, pretrained=tag or None if pretrained else None).visual
    size = visual.image_size
    return Encoder(
        visual, size if isinstance(size, int) else size[0], tuple(visual.image_mean), tuple(visual.image_std)
    )
