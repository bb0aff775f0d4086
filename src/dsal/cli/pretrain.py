"""``dsal pretrain``: train a backbone on the base classes."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    import torch

    from dsal.cli.display import Display
    from dsal.data import ImageData, Scenario
    from dsal.progress import Progress
    from dsal.training import BaseTraining


def pretrain(
    out: Annotated[Path, typer.Option(help="File of weights to write; its checkpoint is kept beside it.")],
    dataset: Annotated[str, typer.Option(help="Image data set.")] = "cifar100",
    data_root: Annotated[Path | None, typer.Option(help="Folder of the image data sets.", show_default=False)] = None,
    download: Annotated[bool, typer.Option("--download", help="Fetch a data set that is not there.")] = False,
    backbone: Annotated[str, typer.Option(help="Architecture.")] = "resnet32",
    recipe: Annotated[str, typer.Option(help="How to train: strong, paper, imagenet, characters.")] = "strong",
    epochs: Annotated[int | None, typer.Option(help="Epochs.", show_default="the recipe's")] = None,
    base_classes: Annotated[int | None, typer.Option(help="Classes to train on.", show_default="half of them")] = None,
    class_order: Annotated[str, typer.Option(help="natural, or the seed of a permutation (1993).")] = "natural",
    seed: Annotated[int, typer.Option(help="Initial weights, batches, augmentation, and what is held out.")] = 0,
    held_out: Annotated[float, typer.Option(help="Share of the base training data to measure accuracy on.")] = 0.02,
    size: Annotated[int, typer.Option(help="Side in pixels of images that are in files (ImageNet).")] = 224,
    flip: Annotated[bool, typer.Option(help="Features as the mean of those of an image and its mirror image.")] = True,
    start: Annotated[Path | None, typer.Option(help="File of weights to start from.", show_default="random")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on from the last checkpoint.")] = False,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:1, mps.")] = "auto",
    precision: Annotated[str, typer.Option(help="auto, float32, bfloat16, float16.")] = "auto",
    compiled: Annotated[
        bool | None, typer.Option("--compile/--no-compile", help="Use torch.compile.", show_default="on CUDA")
    ] = None,
    sync_batchnorm: Annotated[
        bool, typer.Option("--sync-batchnorm", help="Under torchrun: normalise over the images of all processes.")
    ] = False,
) -> None:
    """Train a backbone on the base classes, once; a killed training goes on with --resume, to the same weights.

    The weights are those of the last epoch (or the recipe's average), never chosen by accuracy.
    """
    from dataclasses import replace

    from dsal.backbones import load_backbone, save_backbone
    from dsal.cli.display import Display
    from dsal.data import Scenario, load_dataset
    from dsal.distributed import current
    from dsal.errors import InputError
    from dsal.evaluation.provenance import environment
    from dsal.store import check_writable
    from dsal.training import RECIPES, BaseTraining, choose_device, choose_precision, load_checkpoint

    out.parent.mkdir(parents=True, exist_ok=True)
    check_writable(out)
    display, team = Display(), current()
    checkpoint = out.with_name(out.name + ".checkpoint")
    stopped = team.told(checkpoint.exists)
    if stopped and not resume:
        raise InputError(f"{checkpoint} is left from a stopped training: go on with --resume, or remove it")
    chosen = RECIPES.get(recipe)
    chosen = chosen if epochs is None else replace(chosen, epochs=epochs)
    with display.preparation() as progress:
        with team.leader_first():
            data = load_dataset(dataset, data_root, download, partial(progress, f"fetching {dataset}"))
        classes = len(data.class_names)
        scenario = Scenario.deal(classes, base=base_classes, phases=int(base_classes != classes), order=class_order)
        train, test = (
            part.take(_base_rows(part.labels, scenario)).at(size, 3).in_memory(partial(progress, "reading images"))
            for part in (data.train, data.test)
        )
    where = choose_device(device)
    training = BaseTraining(
        train,
        dataset=dataset,
        classes=scenario.labels(0),
        class_order=class_order,
        architecture=backbone,
        recipe=chosen,
        seed=seed,
        held_out=held_out,
        start=None if start is None else load_backbone(start),
        flip=flip,
        device=where,
        precision=choose_precision(precision, where),
        compiled=where.type == "cuda" if compiled is None else compiled,
        sync_batchnorm=sync_batchnorm,
        team=team,
    )
    if stopped:
        load_checkpoint(checkpoint, training)
        display.note(f"going on after epoch {len(training.history)} of {chosen.epochs}")
    _follow(training, checkpoint, display)
    accuracy = training.accuracy(_by_position(test, scenario, where))
    record = {"command": " ".join(["dsal", *sys.argv[1:]]), "base_test_accuracy": accuracy, **environment(team)}
    trained = training.backbone(record)
    if not team.leads:
        return
    save_backbone(out, trained)
    checkpoint.unlink(missing_ok=True)
    typer.echo(f"accuracy on the test images of the {scenario.seen(0)} base classes: {accuracy:.2f}%")
    display.note(f"weights in {out}")


def _follow(training: BaseTraining, checkpoint: Path, display: Display) -> None:
    """Train to the end: a bar that moves with every step, a line and a checkpoint for every epoch."""
    from dsal.training import save_checkpoint

    with display.bar() as bar:
        steps = training.fit.steps_per_epoch
        task = bar.add_task("", total=training.recipe.epochs * steps, completed=len(training.history) * steps)

        def on_step(now: Progress) -> None:
            bar.update(task, completed=now.done, description=now.note)

        for result in training.epochs(on_step):
            if training.team.leads:
                save_checkpoint(checkpoint, training)
            held_out = result.held_out_accuracy
            display.note(
                f"epoch {result.epoch:>3}/{result.epochs}  loss {result.loss:.3f}  training {result.accuracy:5.2f}%  "
                + ("" if held_out is None else f"held out {held_out:5.2f}%  ")
                + f"{result.seconds:.1f} s"
            )


def _base_rows(labels: torch.Tensor, scenario: Scenario) -> torch.Tensor:
    """Rows of the images of the base classes."""
    import torch

    return torch.from_numpy(scenario.phase_rows(labels, 0))


def _by_position(data: ImageData, scenario: Scenario, device: torch.device) -> ImageData:
    """The images on the device, labelled by position in the class order."""
    import torch

    from dsal.data import ImageData

    return ImageData(data.images.to(device), torch.from_numpy(scenario.positions(data.labels)).to(device))
