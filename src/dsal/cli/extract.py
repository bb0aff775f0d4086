"""``dsal extract``: features of a whole data set, in one file that ``dsal run`` reads."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

import typer


def extract(
    weights: Annotated[str, typer.Option(help="File of backbone weights, or the name of a pretrained backbone.")],
    out: Annotated[Path, typer.Option(help="File of features to write; its stem is the name of the set.")],
    dataset: Annotated[str, typer.Option(help="Image data set.")] = "cifar100",
    data_root: Annotated[Path | None, typer.Option(help="Folder of the image data sets.", show_default=False)] = None,
    features: Annotated[
        str | None, typer.Option(help="Kind: last, stages or blocks.", show_default="the widest there is")
    ] = None,
    step: Annotated[
        float | None,
        typer.Option(
            help="Code the features in few bits: error of each about 0.3 steps, in standard deviations.",
            show_default="float16",
        ),
    ] = None,
    download: Annotated[bool, typer.Option("--download", help="Fetch a data set that is not there.")] = False,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:1, mps.")] = "auto",
) -> None:
    """Write the features of all images of a data set, as float16 or coded in fewer bits.

    The file carries class names and the card of the backbone. It serves as a data set: dsal run --dataset FILE.
    """
    from dsal.backbones.hub import open_backbone
    from dsal.cli.display import Display
    from dsal.data import load_dataset, save_features
    from dsal.distributed import current
    from dsal.features import extract_dataset
    from dsal.store import check_writable
    from dsal.training import choose_device

    out.parent.mkdir(parents=True, exist_ok=True)
    check_writable(out)
    display = Display()
    backbone = open_backbone(weights).to(choose_device(device))
    with display.preparation() as progress:
        with current().leader_first():
            data = load_dataset(dataset, data_root, download, partial(progress, f"fetching {dataset}"))
        made = extract_dataset(backbone, data, features=features, name=out.stem, progress=partial(progress, "features"))
    if not current().leads:
        return
    save_features(out, made, step=step)
    display.note(f"{len(made.train_y)} training and {len(made.test_y)} test rows of {made.kind} features in {out}")
