"""``dsal forget``: unlearn images."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dsal.cli.image_model import Device, KeepCompensation, Model, SkipBroken, Wait


def forget(
    model: Model,
    source: Annotated[Path, typer.Argument(metavar="FOLDER", help="The images to forget; all must have been learned.")],
    keep_compensation: KeepCompensation = False,
    wait: Wait = None,
    skip_broken: SkipBroken = False,
    device: Device = "auto",
) -> None:
    """Forget images, as if the model had never seen them; classes without images are removed.

    This is exact in the main stream. The compensation stream cannot forget, so the model then predicts with the main
    stream alone, unless you pass --keep-compensation. The files must be the very ones that were learned.
    """
    from dsal.cli.image_model import broken_option, take_images
    from dsal.data.images.labelled_files import read_files

    files, broken = read_files(source), broken_option(skip_broken)
    take_images(
        "forgot",
        model,
        wait,
        device,
        lambda taught, progress: taught.forget(
            files, keep_compensation=keep_compensation, broken=broken, progress=progress
        ),
    )
