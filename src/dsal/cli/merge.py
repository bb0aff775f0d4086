"""``dsal merge``: several models into one, without their images."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dsal.errors import InputError


def merge(
    models: Annotated[list[Path], typer.Argument(metavar="MODEL MODEL...", help="Files of `dsal learn`.")],
    out: Annotated[Path, typer.Option(help="The model to write; may be one of them.")],
) -> None:
    """Merge models that were taught in different places into one that knows what all of them know.

    They need the same backbone, expansion size and seed. The main stream becomes exactly that of all images together;
    the compensation stream is close to it, not equal.
    """
    from dsal.cli.image_model import load_model

    if len(models) < 2:
        raise InputError("merging takes two models or more")
    if len({path.resolve() for path in models}) < len(models):
        raise InputError("a model cannot merge with itself: its images would count twice")
    first, *others = models
    merged = load_model(first)
    for path in others:
        merged.merge(load_model(path))
    merged.save(out)
    typer.echo(f"{out} knows {len(merged.classes)} classes from {sum(merged.counts.values())} images")
