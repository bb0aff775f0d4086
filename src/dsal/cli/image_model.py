"""What the commands on models of images share."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dsal.errors import InputError

if TYPE_CHECKING:
    from dsal.cli.display import Display
    from dsal.images import ImageModel

_MOST_NAMED = 10

Model = Annotated[Path, typer.Argument(metavar="MODEL", help="File that `dsal learn` has written.")]
Wait = Annotated[
    float | None,
    typer.Option(
        metavar="SECONDS",
        help="Wait so long while another command writes the model.",
        show_default="refuse at once",
    ),
]
SkipBroken = Annotated[bool, typer.Option("--skip-broken", help="Skip files that cannot be read.")]
Device = Annotated[str, typer.Option(help="Where the backbone runs: auto, cpu, cuda, mps.")]
KeepCompensation = Annotated[
    bool, typer.Option("--keep-compensation", help="Go on using the compensation stream, which cannot forget.")
]
COMPENSATION_OFF = (
    "the compensation stream still carries the old state, so the model answers by the main stream alone from now on; "
    "dsal undo goes back, --keep-compensation would have kept it"
)


def load_model(path: Path, device: str = "cpu") -> ImageModel:
    """Read a model file; its backbone runs on ``device``."""
    from dsal.images import ImageModel
    from dsal.training import choose_device

    return ImageModel.load(path, device=choose_device(device))


@contextmanager
def changing(path: Path, wait: float | None, device: str = "cpu") -> Iterator[ImageModel]:
    """A model to change, saved at the end of the block; no other process can write it meanwhile."""
    from dsal.images.lock import model_lock

    if not path.is_file():
        raise FileNotFoundError(f"no such file: {path}")
    with model_lock(path, wait):
        taught = load_model(path, device)
        yield taught
        taught.save(path)


def check_backbone(model: ImageModel, name: str, path: Path) -> None:
    """Refuse to go on with another backbone than the one the model was made with."""
    from dsal.backbones.hub import open_backbone

    if open_backbone(name).fingerprint() != model.backbone.fingerprint():
        raise InputError(
            f"{path} was made with the backbone {model.backbone.card.architecture}, and its features are no use with "
            f"{name}: leave --backbone out, or make a new model"
        )


def say_knows(path: Path, model: ImageModel) -> str:
    """What a model knows, in one line."""
    return f"{path} knows {len(model.classes)} classes from {sum(model.counts.values())} images"


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
