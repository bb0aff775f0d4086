"""``dsal export``: a model as one graph for other runtimes, or as a page that needs no server."""

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
    web: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Folder to write: a page that classifies in any browser.", show_default=False),
    ] = None,
    zip: Annotated[
        Path | None, typer.Option(help="The same folder as one zip file, with examples.", show_default=False)
    ] = None,
    runtime: Annotated[
        str | None,
        typer.Option(
            metavar="DIR|URL",
            help="Where the page gets onnxruntime-web: a folder to copy it from, or an https address.",
            show_default="npm install in the folder",
        ),
    ] = None,
) -> None:
    """Export a model as one graph, from pixels to logits, probabilities and novelty; or as a page around that graph."""
    if onnx is None and torch is None and web is None and zip is None:
        raise InputError("nothing to write: give --onnx FILE, --torch FILE, --web DIR or --zip FILE")
    if runtime is not None and web is None and zip is None:
        raise InputError("--runtime is for --web and --zip: give one of them")
    from dsal.cli.image_model import load_model
    from dsal.files.atomic import check_writable
    from dsal.image_model.graph_export import OUTPUTS, export_onnx, export_torch
    from dsal.image_model.web_export import INSTALLED, export_web, export_zip

    for path in (onnx, torch, zip):
        if path is not None:
            check_writable(path)
    taught = load_model(model)
    card = taught.backbone.card
    for path, write in ((onnx, export_onnx), (torch, export_torch)):
        if path is not None:
            write(taught, path)
            say(
                f"{path}: images (n, {card.in_channels}, {card.size}, {card.size}) uint8 to {', '.join(OUTPUTS)} of "
                f"{len(taught.classes)} classes"
            )
    for path, write_page in ((web, export_web), (zip, export_zip)):
        if path is not None:
            write_page(taught, path, model.stem, runtime)
            say(f"{path}: a page for {len(taught.classes)} classes; README.md in it says how to open it")
            if runtime is None:
                say(f"it needs {INSTALLED}: run npm install in the folder, or export with --runtime")
