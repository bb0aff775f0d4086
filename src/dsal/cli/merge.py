"""``dsal merge``: several models into one, without their images."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dsal.cli.image_model import Wait
from dsal.cli.say import say
from dsal.errors import InputError


def merge(
    models: Annotated[
        list[Path], typer.Argument(metavar="MODEL MODEL...", help="Model files written by `dsal learn`.")
    ],
    out: Annotated[Path, typer.Option(help="The model file to write; may be one of the inputs.")],
    again: Annotated[
        bool, typer.Option("--again", help="Count images that several models have learned once for each.")
    ] = False,
    wait: Wait = None,
) -> None:
    """Merge models that were taught in different places.

    They need the same backbone, expansion size and seed. The main stream is then exactly that of all images together;
    the compensation stream is close, but not equal.
    """
    from dsal.files.atomic import check_writable
    from dsal.files.lock import model_lock

    if out.exists():
        check_writable(out)
    if len(models) < 2:
        raise InputError("give at least two models to merge")
    if len({path.resolve() for path in models}) < len(models):
        raise InputError("a model cannot merge with itself: its images would count twice")
    for path in models:
        if not path.is_file():
            raise FileNotFoundError(f"no such file: {path}")

    from dsal.cli.image_model import load_model, say_knows

    first, *others = models
    with model_lock(out, wait):
        merged = load_model(first)
        for path in others:
            merged.merge(load_model(path), again=again)
        merged.save(out)
    say(say_knows(out, merged))
    say("probabilities and novelty are estimated from the merged sums; the next lesson measures them again")
