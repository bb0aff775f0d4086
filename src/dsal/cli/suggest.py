"""``dsal suggest``: which unlabelled images to label next."""

from __future__ import annotations

import json as json_
from functools import partial
from typing import Annotated

import typer

from dsal.cli.image_model import Device, Model, NamedImages, SkipBroken, named_images
from dsal.cli.say import say


def suggest(
    model: Model,
    images: NamedImages,
    count: Annotated[int, typer.Option(min=1, help="How many to suggest.")] = 20,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON list.")] = False,
    skip_broken: SkipBroken = False,
    device: Device = "auto",
) -> None:
    """Pick the unlabelled images that would teach the model most: typical examples of what it is unsure of.

    The most useful comes first. Sort these into class folders and `dsal learn` them. Images that were learned before
    are left out.
    """
    paths = named_images(images)

    from dsal.cli.display import Display
    from dsal.cli.image_model import broken_option, load_predictor, say_broken
    from dsal.cli.predict import line_of, record_of

    taught = load_predictor(model, device)
    with Display().preparation() as progress:
        broken = broken_option(skip_broken)
        answers = taught.suggest(paths, count, broken=broken, progress=partial(progress, "reading images"))
    say_broken(answers.broken)
    if json:
        say(json_.dumps([record_of(answer) for answer in answers], indent=2, ensure_ascii=False))
        return
    for answer in answers:
        say(line_of(answer))
