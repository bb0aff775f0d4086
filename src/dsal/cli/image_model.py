"""What the commands on models of images share."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from glob import glob, has_magic
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dsal.errors import InputError

if TYPE_CHECKING:
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
    from dsal.store import check_writable

    if not path.is_file():
        raise FileNotFoundError(f"no such file: {path}")
    check_writable(path)
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


def say_broken(broken: Sequence[str]) -> None:
    """Count the files that were skipped, and name the first of them."""
    for reason in broken[:_MOST_NAMED]:
        note(f"skipped: {reason}")
    if len(broken) > _MOST_NAMED:
        note(f"... and {len(broken) - _MOST_NAMED} more")
    if broken:
        note(f"{len(broken)} files could not be read and were skipped")


def note(text: str) -> None:
    """One line on stderr."""
    typer.echo(text, err=True)


def named_images(names: Sequence[str]) -> tuple[Path, ...]:
    """Image files by path, folder or quoted pattern; ``-`` stands for names on stdin, one a line."""
    from dsal.data.folder import find_images

    given: list[str] = []
    for name in names:
        given += [line for line in sys.stdin.read().splitlines() if line.strip()] if name == "-" else [name]
    found: list[Path] = []
    for name in given:
        is_pattern = has_magic(name) and not Path(name).exists()
        matches = sorted(glob(name, recursive=True)) if is_pattern else [name]  # noqa: PTH207 (absolute ones, too)
        if not matches:
            raise InputError(f"no file fits the pattern {name!r}")
        found += map(Path, matches)
    if not found:
        raise InputError("no image was named")
    return find_images(found)
