"""``dsal forget``: unlearn images."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

import typer


def forget(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="File that `dsal learn` has written.")],
    source: Annotated[
        Path, typer.Argument(metavar="FOLDER", help="The images to unlearn: all must have been learned.")
    ],
    keep_compensation: Annotated[
        bool, typer.Option("--keep-compensation", help="Go on using the compensation stream, which cannot forget.")
    ] = False,
    skip_broken: Annotated[bool, typer.Option("--skip-broken", help="Pass over files that cannot be read.")] = False,
    device: Annotated[str, typer.Option(help="Where the backbone runs: auto, cpu, cuda, mps.")] = "auto",
) -> None:
    """Make a model as if it had never seen these images; classes left without images leave it.

    Exact in the main stream. The compensation stream still carries a trace of them, so the model answers by the main
    stream alone from then on, unless told otherwise. The files must be the very ones that were learned.
    """
    from dsal.cli.display import Display
    from dsal.cli.image_model import load_model, way_with_broken

    display = Display()
    taught = load_model(model, device)
    with display.preparation() as progress:
        images = taught.forget(
            source,
            keep_compensation=keep_compensation,
            broken=way_with_broken(skip_broken),
            progress=partial(progress, "reading images"),
        )
    taught.save(model)
    typer.echo(
        f"forgot {images} images; {model} knows {len(taught.classes)} classes from {sum(taught.counts.values())} images"
    )
