"""``dsal extract``: features of a whole data set, in one file or a folder of shards that ``dsal run`` reads."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

import typer


def extract(
    weights: Annotated[str, typer.Option(help="File of backbone weights, or the name of a pretrained backbone.")],
    out: Annotated[
        Path,
        typer.Option(
            metavar="FILE.safetensors|FOLDER",
            help="One file, or a folder of shards for data sets larger than memory.",
        ),
    ],
    dataset: Annotated[str, typer.Option(help="Image data set.")] = "cifar100",
    data_root: Annotated[Path | None, typer.Option(help="Folder with the image data sets.", show_default=False)] = None,
    features: Annotated[
        str | None, typer.Option(help="Kind of features: last, stages or blocks.", show_default="the widest available")
    ] = None,
    step: Annotated[
        float | None,
        typer.Option(
            help="Quantise the features to this step, in standard deviations, and compress them.",
            show_default="float16",
        ),
    ] = None,
    download: Annotated[bool, typer.Option("--download", help="Download the data set if it is missing.")] = False,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:1, mps.")] = "auto",
) -> None:
    """Compute the features of all images of a data set and write them, as float16 or compressed (--step).

    The result is a data set of its own: dsal run --dataset FILE|FOLDER. A folder is written shard by shard; run the
    command again to continue after an interruption.
    """
    from dsal.backbones.extraction import extract_dataset, extract_shards
    from dsal.backbones.hub import open_backbone
    from dsal.cli.display import Display
    from dsal.cli.processes import current_team
    from dsal.data import load_dataset, save_features
    from dsal.errors import InputError
    from dsal.files.atomic import check_writable
    from dsal.training import choose_device

    sharded = out.suffix != ".safetensors"
    if sharded and step is not None:
        raise InputError(f"--step compresses all features together, in one file: use --out {out}.safetensors")
    out.parent.mkdir(parents=True, exist_ok=True)
    if not sharded or out.is_file():
        check_writable(out)
    if sharded and out.is_file():
        raise InputError(f"{out} is a file; --out takes a folder for shards, or a name that ends in .safetensors")
    display, team = Display(), current_team()
    backbone = open_backbone(weights).to(choose_device(device))
    with display.preparation() as progress:
        with team.leader_first():
            data = load_dataset(dataset, data_root, download, partial(progress, f"fetching {dataset}"))
        report = partial(progress, "features")
        if sharded:
            made = extract_shards(backbone, data, out, features=features, progress=report, team=team)
        else:
            made = extract_dataset(backbone, data, features=features, name=out.stem, progress=report, team=team)
    if not team.leads:
        return
    if not sharded:
        save_features(out, made, step=step)
    display.note(f"{len(made.train_y)} training and {len(made.test_y)} test rows of {made.kind} features in {out}")
