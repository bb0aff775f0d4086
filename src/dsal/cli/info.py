"""``dsal info``: what is in a model file."""

from __future__ import annotations

import json as json_
from pathlib import Path
from typing import Annotated

import typer

from dsal.cli.say import say
from dsal.errors import FileFormatError


def info(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="Model file written by `dsal learn`.")],
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Show the classes of a model, the number of images of each, and its settings and sizes."""
    from dsal.files.model_schema import IMAGE_MODEL
    from dsal.files.tensors import damaged_arrays

    facts, _, damaged = damaged_arrays(model, IMAGE_MODEL)
    if damaged:
        raise FileFormatError(f"{model} was changed after it was written: see dsal check {model}")
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
        say(json_.dumps(record, indent=2, ensure_ascii=False))
        return
    for name, value in record.items():
        if name == "classes":
            say(f"classes: {len(counts)}")
            for label, images in counts.items():
                say(f"  {label}: {images}")
        elif name in ("undo", "redo"):
            say(f"{name}: {'; '.join(record[name]) or 'nothing'}")
        else:
            say(f"{name.replace('_', ' ')}: {value}")
