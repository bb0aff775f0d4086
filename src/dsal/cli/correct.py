"""``dsal rename``, ``drop``, ``undo``, ``redo``, ``relabel`` and ``forget``: correct what a model was taught."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dsal.cli.arguments import Device, option
from dsal.cli.image_model import KeepCompensation, Model, SkipBroken, Wait
from dsal.cli.say import say
from dsal.errors import InputError


def rename(
    model: Model,
    old: Annotated[str, typer.Argument(metavar="OLD", help="The current name of the class.")],
    new: Annotated[str, typer.Argument(metavar="NEW", help="Its new name.")],
    wait: Wait = None,
) -> None:
    """Rename a class."""
    from dsal.cli.image_model import correcting

    with correcting(model, wait) as taught:
        taught.rename(old, new)
    say(f"{old} is now called {new}")


def drop(
    model: Model, label: Annotated[str, typer.Argument(metavar="CLASS", help="The class to remove.")], wait: Wait = None
) -> None:
    """Remove a class: the model never predicts it again.

    Its images still count as negative examples of the other classes. To remove them completely, use `dsal forget`,
    which needs the images.
    """
    from dsal.cli.image_model import correcting, say_knows
    from dsal.image_model.sources import plural

    with correcting(model, wait) as taught:
        images = taught.counts.get(label, 0)
        taught.drop(label)
        knows = say_knows(model, taught)
    say(f"dropped {label}; {knows}")
    say(
        f"what it learned from {plural(images, 'image')} still counts as negative examples of the other classes; "
        "dsal forget, which needs the images, removes it completely"
    )


def undo(model: Model, wait: Wait = None) -> None:
    """Undo the last change, bit for bit; `dsal info` shows what can be undone."""
    from dsal.cli.image_model import correcting, say_knows

    with correcting(model, wait) as taught:
        history = taught.timeline.history
        if history and not history[0].meta:
            raise InputError(
                f"{model} has had only one lesson, so undoing it would leave nothing: delete the file instead"
            )
        change, knows = taught.undo(), say_knows(model, taught)
    say(f"undone: {change}; {knows}; dsal redo reverts this")


def redo(model: Model, wait: Wait = None) -> None:
    """Redo the last change that `dsal undo` reverted; possible until the next change."""
    from dsal.cli.image_model import correcting, say_knows

    with correcting(model, wait) as taught:
        change, knows = taught.redo(), say_knows(model, taught)
    say(f"redone: {change}; {knows}")


def relabel(
    model: Model,
    images: Annotated[
        list[Path],
        typer.Argument(metavar="IMAGES...", help="Images learned under the wrong label, or FOLDER/<right class>/*."),
    ],
    to: Annotated[str | None, option("The right class.", "from the folders", metavar="CLASS")] = None,
    keep_compensation: KeepCompensation = False,
    wait: Wait = None,
    skip_broken: SkipBroken = False,
    device: Device = "auto",
) -> None:
    """Correct the labels of images that were learned under the wrong one.

    With `--to`, all given images move to that class. Without it, give one folder of class folders (or a CSV): images
    that were learned under a different label move to the class of their folder.
    """
    from dsal.cli.image_model import broken_option, take_images
    from dsal.data.images.labelled_files import find_images, read_files

    if to is None and len(images) > 1:
        raise InputError("give the right class with --to CLASS, or give one folder of class folders")
    given = find_images(images) if to is not None else read_files(images[0])
    broken = broken_option(skip_broken)
    take_images(
        "relabelled",
        model,
        wait,
        device,
        lambda taught, progress: taught.relabel(
            given, to, keep_compensation=keep_compensation, broken=broken, progress=progress
        ),
    )


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
