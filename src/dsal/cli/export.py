"""``dsal export``: a model as one graph for other runtimes."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dsal.cli.say import say
from dsal.errors import InputError


def export(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="Model file written by `dsal learn`.")],
    onnx: Annotated[Path | None, typer.Option(help="ONNX file to write.", show_default=False)] = None,
    torch: Annotated[Path | None, typer.Option(help="torch.export file to write.", show_default=False)] = None,
) -> None:
    """Export backbone, expansion and both streams as one graph: pixels in, logits out, labels in the metadata."""
    from dsal.cli.image_model import load_model
    from dsal.files.atomic import check_writable
    from dsal.image_model.graph_export import export_onnx, export_torch

    if onnx is None and torch is None:
        raise InputError("nothing to write: give --onnx FILE, --torch FILE, or both")
    for path in (onnx, torch):
        if path is not None:
            check_writable(path)
    taught = load_model(model)
    for path, write in ((onnx, export_onnx), (torch, export_torch)):
        if path is not None:
            write(taught, path)
            say(
                f"{path}: images (n, {taught.backbone.card.in_channels}, {taught.backbone.card.size}, "
                f"{taught.backbone.card.size}) uint8 to logits of {len(taught.classes)} classes"
            )
