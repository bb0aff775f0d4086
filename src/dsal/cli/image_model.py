"""What the commands on models of images share."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from dsal.errors import InputError

if TYPE_CHECKING:
    from dsal.cli.display import Display
    from dsal.images import ImageModel

_MOST_NAMED = 10


def load_model(path: Path, device: str = "cpu") -> ImageModel:
    """Read a model file; its backbone runs on ``device``."""
    from dsal.images import ImageModel
    from dsal.training import choose_device

    return ImageModel.load(path, device=choose_device(device))


def check_backbone(model: ImageModel, name: str, path: Path) -> None:
    """Refuse to go on with another backbone than the one the model was made with."""
    from dsal.backbones.hub import open_backbone

    if open_backbone(name).fingerprint() != model.backbone.fingerprint():
        raise InputError(
            f"{path} was made with the backbone {model.backbone.card.architecture}, and its features are no use with "
            f"{name}: leave --backbone out, or make a new model"
        )


def way_with_broken(skip: bool) -> str:
    """The answer to ``--skip-broken``."""
    return "skip" if skip else "stop"


def say_broken(display: Display, broken: Sequence[str]) -> None:
    """Count the files that were skipped, and name the first of them."""
    for reason in broken[:_MOST_NAMED]:
        display.note(f"skipped: {reason}")
    if len(broken) > _MOST_NAMED:
        display.note(f"... and {len(broken) - _MOST_NAMED} more")
    if broken:
        display.note(f"{len(broken)} files could not be read and were skipped")
