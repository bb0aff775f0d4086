"""``dsal forget``: unlearn images."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from dsal.cli.image_model import COMPENSATION_OFF, Device, KeepCompensation, Model, SkipBroken, Wait


def forget(
    model: Model,
    source: Annotated[
        Path, typer.Argument(metavar="FOLDER", help="The images to unlearn: all must have been learned.")
    ],
    keep_compensation: KeepCompensation = False,
    wait: Wait = None,
    skip_broken: SkipBroken = False,
    device: Device = "auto",
) -> None:
    """Make a model as if it had never seen these images; classes left without images leave it.

    Exact in the main stream. The compensation stream still carries a trace of them, so the model answers by the main
    stream alone from then on, unless told otherwise. The files must be the very ones that were learned.
    """
    from dsal.data.folder import read_files

    files = read_files(source)

    from dsal.cli.display import Display
    from dsal.cli.image_model import changing, say_knows, way_with_broken

    display = Display()
    with changing(model, wait, device) as taught:
        before = taught.classifier.compensation_
        with display.preparation() as progress:
            images = taught.forget(
                files,
                keep_compensation=keep_compensation,
                broken=way_with_broken(skip_broken),
                progress=partial(progress, "reading images"),
            )
    typer.echo(f"forgot {images} images; {say_knows(model, taught)}")
    if before and not taught.classifier.compensation_:
        typer.echo(COMPENSATION_OFF)
