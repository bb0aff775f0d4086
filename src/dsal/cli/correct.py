"""``dsal rename``, ``drop``, ``undo`` and ``relabel``: correct what a model was taught."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from dsal.cli.image_model import COMPENSATION_OFF, Device, KeepCompensation, Model, SkipBroken, Wait
from dsal.errors import InputError


def rename(
    model: Model,
    old: Annotated[str, typer.Argument(metavar="OLD", help="The class as it is called now.")],
    new: Annotated[str, typer.Argument(metavar="NEW", help="Its new name.")],
    wait: Wait = None,
) -> None:
    """Give a class another name."""
    from dsal.cli.image_model import changing

    with changing(model, wait) as taught:
        taught.rename(old, new)
    typer.echo(f"{old} is now called {new}")


def drop(
    model: Model,
    label: Annotated[str, typer.Argument(metavar="CLASS", help="The class to take out.")],
    wait: Wait = None,
) -> None:
    """Take a class out of a model, which never answers it again.

    Its images still count as examples of what the other classes are not. Removing every trace of them takes the images
    themselves: `dsal forget`.
    """
    from dsal.cli.image_model import changing, say_knows

    with changing(model, wait) as taught:
        images = taught.counts.get(label)
        taught.drop(label)
    typer.echo(f"dropped {label}; {say_knows(model, taught)}")
    typer.echo(
        f"its {images} images still count as examples of what the other classes are not; "
        "dsal forget, which needs the images, would remove every trace"
    )


def undo(model: Model, wait: Wait = None) -> None:
    """Go back to the model before the last change, bit for bit; `dsal info` tells what can be undone."""
    from dsal.cli.image_model import changing, say_knows

    if not model.is_file():
        raise FileNotFoundError(f"no such file: {model}")
    with changing(model, wait) as taught:
        if taught.history and not taught.history[0].meta:
            raise InputError(f"before its only lesson {model} knew nothing: delete the file instead")
        change = taught.undo()
    typer.echo(f"undone: {change}; {say_knows(model, taught)}")


def relabel(
    model: Model,
    images: Annotated[
        list[Path],
        typer.Argument(metavar="IMAGES...", help="Images learned under the wrong name; or FOLDER/<right class>/*."),
    ],
    to: Annotated[
        str | None, typer.Option(metavar="CLASS", help="Their right class.", show_default="that of their folders")
    ] = None,
    keep_compensation: KeepCompensation = False,
    wait: Wait = None,
    skip_broken: SkipBroken = False,
    device: Device = "auto",
) -> None:
    """Move images that were learned under the wrong name to the right one, in one step.

    With `--to`, all images given move to that class. Without, one folder of class folders (or a CSV) says where each
    image belongs, and those that were learned under another name move.
    """
    from dsal.data.folder import find_images, read_files

    if to is None and len(images) > 1:
        raise InputError("say where these images belong with --to CLASS, or give one folder of class folders")
    given = find_images(images) if to is not None else read_files(images[0])

    from dsal.cli.display import Display
    from dsal.cli.image_model import changing, say_knows, way_with_broken

    display = Display()
    with changing(model, wait, device) as taught:
        before = taught.classifier.compensation_
        with display.preparation() as progress:
            moved = taught.relabel(
                given,
                to,
                keep_compensation=keep_compensation,
                broken=way_with_broken(skip_broken),
                progress=partial(progress, "reading images"),
            )
    typer.echo(f"relabelled {moved} images; {say_knows(model, taught)}")
    if before and not taught.classifier.compensation_:
        typer.echo(COMPENSATION_OFF)
