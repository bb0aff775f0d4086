"""``dsal learn``: teach a model a folder of images."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from dsal.errors import InputError


def learn(
    source: Annotated[Path, typer.Argument(metavar="FOLDER", help="FOLDER/<class>/*, or a CSV of path,label.")],
    model: Annotated[Path, typer.Option(help="The model: made if it is not there, else taught more.")],
    backbone: Annotated[
        str | None,
        typer.Option(
            help="efficientnet-lite0, torchvision:NAME, timm:NAME, or a file of weights.",
            show_default="the model's; efficientnet-lite0 for a new one",
        ),
    ] = None,
    expansion_size: Annotated[
        int | None, typer.Option(help="d_B of a new model: larger learns finer, costs its square.", show_default="4096")
    ] = None,
    gamma: Annotated[float | None, typer.Option(help="Ridge of a new model.", show_default="0.1")] = None,
    seed: Annotated[int | None, typer.Option(help="Of the expansion of a new model.", show_default="0")] = None,
    skip_broken: Annotated[bool, typer.Option("--skip-broken", help="Pass over files that cannot be read.")] = False,
    device: Annotated[str, typer.Option(help="Where the backbone runs: auto, cpu, cuda, mps.")] = "auto",
) -> None:
    """Learn new classes, or more images of known ones, in one phase; no image is kept.

    The model file is replaced when all is learned, in one step: if anything goes wrong, it is what it was.
    """
    from dsal.backbones.hub import DEFAULT
    from dsal.classifier import DSALClassifier
    from dsal.cli.display import Display
    from dsal.cli.image_model import check_backbone, load_model, say_broken, way_with_broken
    from dsal.data.folder import read_files
    from dsal.distributed import current
    from dsal.images import ImageModel
    from dsal.training import choose_device

    display = Display()
    files = read_files(source)
    own: dict[str, Any] = {"expansion_size": expansion_size, "gamma": gamma, "random_state": seed}
    given = {name: value for name, value in own.items() if value is not None}
    team = current()
    if team.told(model.exists):
        taught = load_model(model, device)
        if given:
            raise InputError(f"{model} is there already: expansion size, gamma and seed are fixed when a model is made")
        if backbone is not None:
            check_backbone(taught, backbone, model)
    else:
        if not model.parent.is_dir():
            raise InputError(f"there is no folder {model.parent} to write {model.name} to")
        classifier = DSALClassifier(**{"expansion_size": 4096, **given})
        taught = ImageModel(backbone or DEFAULT, classifier, choose_device(device))
    with display.preparation() as progress:
        way = way_with_broken(skip_broken)
        lesson = taught.learn(files, broken=way, progress=partial(progress, "reading images"))
    if not team.leads:
        return
    taught.save(model)
    say_broken(display, lesson.broken)
    if lesson.new_classes:
        typer.echo(f"new classes: {', '.join(lesson.new_classes)}")
    if lesson.known_classes:
        typer.echo(f"more images of: {', '.join(lesson.known_classes)}")
    typer.echo(
        f"learned {lesson.images} images; {model} now knows {len(taught.classes)} classes from "
        f"{sum(taught.counts.values())} images"
    )
    typer.echo(f"leave-one-out accuracy of the new images (main stream): {100 * lesson.loo_accuracy:.1f}%")
