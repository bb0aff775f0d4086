"""``dsal info``: what is in a model file."""

from __future__ import annotations

import json as json_
from pathlib import Path
from typing import Annotated

import typer


def info(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="Model file written by `dsal learn`.")],
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Show the classes of a model, the number of images of each, and its settings and sizes."""
    from dsal.image_model.image_predictor import read_facts

    facts = read_facts(model)
    head, card, counts = facts["classifier"], facts["card"], facts["counts"]
    record = {
        "path": str(model),
        "bytes": model.stat().st_size,
        "dsal": facts["dsal"],
        "backbone": card["architecture"],
        "backbone_sha256": facts["backbone_sha256"],
        "image_size": card["size"],
        "features": head["features"],
        "expansion_size": head["params"]["expansion_size"],
        "gamma": head["gammas"][0],
        "compensation": facts["compensation"],
        "learns_on": head["learning"],
        "phases": head["phases"],
        "version": facts["version_id"],
        "undo": [version["change"] for version in facts["history"]],
        "redo": [version["change"] for version in facts["undone"]],
        "images": sum(counts.values()),
        "classes": counts,
    }
    if json:
        typer.echo(json_.dumps(record, indent=2, ensure_ascii=False))
        return
    for name, value in record.items():
        if name == "classes":
            typer.echo(f"classes: {len(counts)}")
            for label, images in counts.items():
                typer.echo(f"  {label}: {images}")
        elif name in ("undo", "redo"):
            typer.echo(f"{name}: {'; '.join(record[name]) or 'nothing'}")
        else:
            typer.echo(f"{name.replace('_', ' ')}: {value}")
