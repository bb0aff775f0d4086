"""``dsal info``: what is in a model file."""

from __future__ import annotations

import json as json_
from pathlib import Path
from typing import Annotated

import typer


def info(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="File that `dsal learn` has written.")],
    json: Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")] = False,
) -> None:
    """Show the classes a model knows, the images it has seen of each, its parts and sizes."""
    from dsal.cli.image_model import load_model

    taught = load_model(model)
    head, card = taught.classifier, taught.backbone.card
    record = {
        "path": str(model),
        "bytes": model.stat().st_size,
        "dsal": taught.version,
        "backbone": card.architecture,
        "backbone_sha256": taught.backbone.fingerprint(),
        "image_size": card.size,
        "features": head.n_features_in_,
        "expansion_size": head.expansion_size,
        "gamma": head.gamma_,
        "compensation": head.compensation_,
        "learns_on": taught.learns_on,
        "phases": head.n_phases_,
        "undo": [version.change for version in taught.history],
        "images": sum(taught.counts.values()),
        "classes": taught.counts,
    }
    if json:
        typer.echo(json_.dumps(record, indent=2, ensure_ascii=False))
        return
    for name, value in record.items():
        if name == "classes":
            typer.echo(f"classes: {len(taught.counts)}")
            for label, images in taught.counts.items():
                typer.echo(f"  {label}: {images}")
        elif name == "undo":
            typer.echo(f"can be undone: {', '.join(version.change for version in taught.history) or 'nothing'}")
        else:
            typer.echo(f"{name.replace('_', ' ')}: {value}")
