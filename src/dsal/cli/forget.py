"""``dsal forget``: unlearn images."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dsal.cli.image_model import Device, Model, SkipBroken, Wait
from dsal.cli.say import say


def forget(
    model: Model,
    source: Annotated[Path, typer.Argument(metavar="FOLDER", help="The images to forget; all must have been learned.")],
    wait: Wait = None,
    skip_broken: SkipBroken = False,
    device: Device = "auto",
) -> None:
    """Forget images; afterwards nothing in the model file depends on them. This cannot be undone.

    Classes without images are removed. The files must be the very ones that were learned. What cannot forget is removed
    too: the compensation stream, the earlier versions for undo, and leave-one-out results. Probabilities and novelty
    are estimated from the remaining sums until the model learns more.
    """
    from dsal.cli.image_model import broken_option, take_images
    from dsal.data.images.labelled_files import read_files

    files, broken = read_files(source), broken_option(skip_broken)
    take_images(
        "forgot", model, wait, device, lambda taught, progress: taught.forget(files, broken=broken, progress=progress)
    )
    say(
        "this cannot be undone: earlier versions and leave-one-out results were removed with the images; probabilities "
        "and novelty are estimated until the model learns more. Copies of the file elsewhere still know the images"
    )
