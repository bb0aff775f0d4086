"""``dsal predict``: labels of images."""

from __future__ import annotations

import json as json_
import math
from functools import partial
from pathlib import Path
from typing import Annotated

import typer


def predict(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="File that `dsal learn` has written.")],
    images: Annotated[list[Path], typer.Argument(metavar="IMAGES...", help="Files, or folders of images.")],
    top_k: Annotated[int, typer.Option(help="How many of the most likely classes to give.")] = 5,
    threshold: Annotated[float, typer.Option(help="Novelty above which an image counts as unknown.")] = 0.95,
    json: Annotated[bool, typer.Option("--json", help="One JSON list on stdout.")] = False,
    skip_broken: Annotated[bool, typer.Option("--skip-broken", help="Pass over files that cannot be read.")] = False,
    device: Annotated[str, typer.Option(help="Where the backbone runs: auto, cpu, cuda, mps.")] = "auto",
) -> None:
    """Name images, or say that they look like nothing that was taught.

    Novelty is the share of the images learned that look less strange than this one.
    """
    from dsal.cli.display import Display
    from dsal.cli.image_model import load_model, say_broken, way_with_broken

    display = Display()
    taught = load_model(model, device)
    with display.preparation() as progress:
        answers = taught.predict(
            images,
            top_k=top_k,
            threshold=threshold,
            broken=way_with_broken(skip_broken),
            progress=partial(progress, "reading images"),
        )
    say_broken(display, answers.broken)
    if json:
        typer.echo(
            json_.dumps(
                [
                    {
                        "path": str(answer.path),
                        "label": answer.label,
                        "score": answer.score,
                        "top_k": [{"label": label, "score": score} for label, score in answer.top_k],
                        "novelty": None if math.isnan(answer.novelty) else answer.novelty,
                        "novel": answer.novel,
                    }
                    for answer in answers
                ],
                indent=2,
                ensure_ascii=False,
            )
        )
        return
    for answer in answers:
        ranked = "  ".join(f"{label} {score:.2f}" for label, score in answer.top_k)
        unknown = "unknown; nearest: " if answer.novel else ""
        typer.echo(f"{answer.path}: {unknown}{ranked}  (novelty {answer.novelty:.2f})")
