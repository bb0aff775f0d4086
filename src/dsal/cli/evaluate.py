"""``dsal evaluate``: how often a model is right about labelled images."""

from __future__ import annotations

import json as json_
import math
from functools import partial
from pathlib import Path
from typing import Annotated

import typer


def evaluate(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="File that `dsal learn` has written.")],
    source: Annotated[Path, typer.Argument(metavar="FOLDER", help="FOLDER/<class>/*, or a CSV of path,label.")],
    json: Annotated[bool, typer.Option("--json", help="One JSON object on stdout, confusion counts included.")] = False,
    skip_broken: Annotated[bool, typer.Option("--skip-broken", help="Pass over files that cannot be read.")] = False,
    device: Annotated[str, typer.Option(help="Where the backbone runs: auto, cpu, cuda, mps.")] = "auto",
) -> None:
    """Measure accuracy on images that were not learned; those of classes never taught should be flagged as novel."""
    from dsal.cli.display import Display
    from dsal.cli.image_model import load_model, say_broken, way_with_broken

    display = Display()
    taught = load_model(model, device)
    with display.preparation() as progress:
        way = way_with_broken(skip_broken)
        found = taught.evaluate(source, broken=way, progress=partial(progress, "reading images"))
    say_broken(found.broken)
    totals, right = found.confusion.sum(1), found.confusion.diagonal()
    known = int(totals.sum())
    if json:
        record = {
            "accuracy": None if math.isnan(found.accuracy) else found.accuracy,
            "known": {"images": known, "flagged": found.known_flagged},
            "unknown": {"images": found.unknown, "flagged": found.unknown_flagged},
            "classes": list(found.classes),
            "confusion": found.confusion.tolist(),
        }
        typer.echo(json_.dumps(record, indent=2, ensure_ascii=False))
        return
    width = max(map(len, found.classes))
    for label, hits, images in zip(found.classes, right, totals, strict=True):
        if images:
            typer.echo(f"{label:<{width}}  {100 * hits / images:6.2f}%  of {images} images")
    if known:
        typer.echo(f"accuracy {100 * found.accuracy:.2f}% on {known} images of known classes")
        typer.echo(f"flagged as unknown: {found.known_flagged} of {known} images of known classes")
    if found.unknown:
        typer.echo(f"flagged as unknown: {found.unknown_flagged} of {found.unknown} images of classes never taught")
