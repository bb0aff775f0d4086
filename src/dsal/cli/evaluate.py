"""``dsal evaluate``: accuracy on labelled images."""

from __future__ import annotations

import json as json_
import math
from functools import partial
from typing import Annotated

import typer

from dsal.cli.image_model import Device, Model, SkipBroken, Source
from dsal.cli.say import say


def evaluate(
    model: Model,
    source: Source,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object, with confusion counts.")] = False,
    skip_broken: SkipBroken = False,
    device: Device = "auto",
) -> None:
    """Measure accuracy on held-out images; images of classes that were never taught should be flagged as unknown."""
    from dsal.data.images.labelled_files import passed_over_text, read_files

    files = read_files(source)

    from dsal.cli.display import Display
    from dsal.cli.image_model import broken_option, load_predictor, say_broken

    display = Display()
    taught = load_predictor(model, device)
    with display.preparation() as progress:
        broken = broken_option(skip_broken)
        found = taught.evaluate(files, broken=broken, progress=partial(progress, "reading images"))
    if files.passed:
        display.note(f"passed over: {passed_over_text(files.passed)}")
    say_broken(found.broken)
    totals, right = found.confusion.sum(1), found.confusion.diagonal()
    known = int(totals.sum())
    if json:
        record = {
            "accuracy": None if math.isnan(found.accuracy) else found.accuracy,
            "accepted_accuracy": None if math.isnan(found.accepted_accuracy) else found.accepted_accuracy,
            "known": {"images": known, "flagged": found.known_flagged},
            "unknown": {"images": found.unknown, "flagged": found.unknown_flagged},
            "classes": list(found.classes),
            "confusion": found.confusion.tolist(),
        }
        say(json_.dumps(record, indent=2, ensure_ascii=False))
        return
    width = max(map(len, found.classes))
    for label, hits, images in zip(found.classes, right, totals, strict=True):
        if images:
            say(f"{label:<{width}}  {100 * hits / images:6.2f}%  of {images} images")
    if known:
        say(f"accuracy {100 * found.accuracy:.2f}% on {known} images of known classes, flagged or not")
        say(
            f"flagged as unknown: {found.known_flagged} of {known} images of known classes; accuracy "
            f"{100 * found.accepted_accuracy:.2f}% if these count as wrong"
        )
    if found.unknown:
        say(f"flagged as unknown: {found.unknown_flagged} of {found.unknown} images of classes never taught")
