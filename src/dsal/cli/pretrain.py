"""``dsal pretrain``: train a backbone on the base classes. ``dsal extract``: features of a whole data set.

Features go to one file or a folder of shards, which ``dsal run`` reads.
"""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dsal.cli.arguments import ClassOrder, DataRoot, Device, Download, flag, option
from dsal.cli.say import say

if TYPE_CHECKING:
    from dsal.base.progress import Progress
    from dsal.cli.display import Display
    from dsal.training import BaseTraining


def pretrain(
    out: Annotated[Path, option("File of weights to write; the checkpoint is written next to it.")],
    dataset: Annotated[
        str, option("Image data set, or a folder with one subfolder of images per class.", metavar="NAME|FOLDER")
    ] = "cifar100",
    data_root: DataRoot = None,
    download: Download = False,
    architecture: Annotated[str | None, option("Network to train.", "resnet32; resnet18 for images in files")] = None,
    recipe: Annotated[
        str | None,
        option(
            "How to train: strong, again, teacher, distilled, characters, heads, teacher-heads, distilled-heads, "
            "imagenet-strong; the paper's: paper, imagenet. See docs/training.md.",
            "strong; imagenet for images in files",
        ),
    ] = None,
    epochs: Annotated[int | None, option("Epochs.", "the recipe's")] = None,
    base_classes: Annotated[int | None, option("Classes to train on.", "half of them")] = None,
    class_order: ClassOrder = "natural",
    seed: Annotated[int, option("Seed of weights, batches, augmentation and held-out images.")] = 0,
    held_out: Annotated[float, option("Fraction of the base training data held out to measure accuracy.")] = 0.02,
    size: Annotated[
        int | None,
        option(
            "Side of images in files, in pixels; smaller images are not enlarged.", "64 for tiny-imagenet, else 224"
        ),
    ] = None,
    jitter: Annotated[float | None, option("Colour jitter, 0 to 1.", "the recipe's")] = None,
    workers: Annotated[int | None, option("Processes that read image files.", "number of processors")] = None,
    checkpoint_seconds: Annotated[float, option("Seconds between checkpoints within an epoch.")] = 300.0,
    flip: Annotated[bool, option("Average the features of an image and its mirror image.")] = True,
    shift: Annotated[
        int, typer.Option(min=0, max=64, help="Also average the features over shifts by so many pixels; 0 for none.")
    ] = 0,
    start: Annotated[Path | None, option("File of weights to start from.", "random")] = None,
    teacher: Annotated[
        list[Path] | None, option("Weights of a teacher, if the recipe distils; may be repeated.")
    ] = None,
    heads: Annotated[
        bool, option("Also save the auxiliary heads, if the recipe has them; students can learn from them.")
    ] = True,
    resume: Annotated[bool, flag("--resume", "Continue from the last checkpoint.")] = False,
    device: Device = "auto",
    precision: Annotated[str, option("auto, float32, bfloat16, float16.")] = "auto",
    compiled: Annotated[
        bool | None, typer.Option("--compile/--no-compile", help="Use torch.compile.", show_default="on CUDA")
    ] = None,
    sync_batchnorm: Annotated[
        bool, flag("--sync-batchnorm", "Under torchrun: normalise over the images of all processes.")
    ] = False,
) -> None:
    """Train a backbone on the base classes; --resume continues an interrupted training, to the same weights.

    The weights are those of the last epoch (or the recipe's average), never chosen by accuracy.
    """
    from dataclasses import replace

    import torch

    from dsal.backbones import load_backbone, save_backbone
    from dsal.cli.display import Display
    from dsal.cli.processes import current_team
    from dsal.data import FileData, Scenario, load_dataset
    from dsal.errors import InputError
    from dsal.files.atomic import check_writable
    from dsal.protocol.provenance import environment
    from dsal.training import RECIPES, BaseTraining, choose_device, choose_precision, load_checkpoint

    out.parent.mkdir(parents=True, exist_ok=True)
    check_writable(out)
    display, team = Display(), current_team()
    checkpoint = out.with_name(out.name + ".checkpoint")
    stopped = team.broadcast_result(checkpoint.exists)
    if stopped and not resume:
        raise InputError(f"{checkpoint} is left from an interrupted training: continue with --resume, or remove it")
    with display.preparation() as progress:
        with team.leader_first():
            data = load_dataset(dataset, data_root, download, partial(progress, f"fetching {dataset}"))
        classes = len(data.class_names)
        scenario = Scenario.deal(classes, base=base_classes, phases=int(base_classes != classes), order=class_order)
        parts = (data.train, data.test)
        train, test = (
            part.take(torch.from_numpy(scenario.phase_rows(part.labels, 0))).at(size or part.size, 3) for part in parts
        )
    in_files, where = isinstance(train, FileData), choose_device(device)
    chosen = RECIPES.get(recipe or ("imagenet" if in_files else "strong"))
    asked = {"epochs": epochs, "jitter": jitter}
    chosen = replace(chosen, **{name: value for name, value in asked.items() if value is not None})  # type: ignore[arg-type]
    training = BaseTraining(
        train,
        dataset=data.name,
        classes=scenario.labels(0),
        class_order=class_order,
        architecture=architecture or ("resnet18" if in_files else "resnet32"),
        recipe=chosen,
        seed=seed,
        held_out=held_out,
        start=None if start is None else load_backbone(start, auxiliary=True),
        teachers=[load_backbone(path, auxiliary=True) for path in teacher or []],
        flip=flip,
        shift=shift,
        device=where,
        precision=choose_precision(precision, where),
        compiled=where.type == "cuda" if compiled is None else compiled,
        sync_batchnorm=sync_batchnorm,
        team=team,
        workers=workers,
    )
    if stopped:
        load_checkpoint(checkpoint, training)
        step = training.fit.done % training.fit.steps_per_epoch
        inside = f", step {step} of {training.fit.steps_per_epoch}" if step else ""
        display.note(f"continuing after epoch {len(training.history)} of {chosen.epochs}{inside}")
    _follow(training, checkpoint, checkpoint_seconds, display)
    accuracy = training.accuracy(test.relabel(torch.from_numpy(scenario.positions(test.labels))))
    record = {"command": " ".join(["dsal", *sys.argv[1:]]), "base_test_accuracy": accuracy, **environment(team)}
    trained = training.backbone(record, auxiliary=heads)
    if not team.leads:
        return
    save_backbone(out, trained)
    checkpoint.unlink(missing_ok=True)
    say(f"accuracy on the test images of the {scenario.seen(0)} base classes: {accuracy:.2f}%")
    display.note(f"weights in {out}")


def _follow(training: BaseTraining, checkpoint: Path, seconds: float, display: Display) -> None:
    """Train to the end, with a bar that moves with every step, and a line and a checkpoint per epoch."""
    import time

    import torch

    from dsal.training import save_checkpoint

    steps, saved = training.fit.steps_per_epoch, time.monotonic()

    def due() -> bool:
        """Return whether rank 0 says that a checkpoint is due."""
        late = torch.tensor([time.monotonic() - saved >= seconds], dtype=torch.uint8)
        training.team.broadcast_(late)
        return bool(late)

    def save() -> None:
        nonlocal saved
        training.fit.gather_sums_()
        if training.team.leads:
            save_checkpoint(checkpoint, training)
        saved = time.monotonic()

    with display.bar() as bar:
        task = bar.add_task("", total=training.fit.total, completed=training.fit.done)

        def on_step(now: Progress) -> None:
            bar.update(task, completed=now.done, description=now.note)
            if now.done % steps and due():
                save()

        for result in training.epochs(on_step):
            save()
            held_out = result.held_out_accuracy
            display.note(
                f"epoch {result.epoch:>3}/{result.epochs}  loss {result.loss:.3f}  training {result.accuracy:5.2f}%  "
                + ("" if held_out is None else f"held out {held_out:5.2f}%  ")
                + f"{result.seconds:.1f} s"
            )


def extract(
    backbone: Annotated[str, option("Name of a pretrained backbone (docs/backbones.md), or a file of weights.")],
    out: Annotated[
        Path,
        option("One file, or a folder of shards for data sets larger than memory.", metavar="FILE.safetensors|FOLDER"),
    ],
    dataset: Annotated[str, option("Image data set.")] = "cifar100",
    data_root: DataRoot = None,
    features: Annotated[str | None, option("Kind of features: last, stages or blocks.", "the widest available")] = None,
    step: Annotated[
        float | None,
        option("Quantise the features to this step, in standard deviations, and compress them.", "float16"),
    ] = None,
    download: Download = False,
    device: Device = "auto",
) -> None:
    """Compute the features of all images of a data set and write them, as float16 or compressed (--step).

    The result is a data set of its own: dsal run --dataset FILE|FOLDER. A folder is written shard by shard; run the
    command again to continue after an interruption.
    """
    from dsal.backbones.extraction import extract_dataset, extract_shards
    from dsal.backbones.pretrained import open_backbone
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
    network = open_backbone(backbone).to(choose_device(device))
    with display.preparation() as progress:
        with team.leader_first():
            data = load_dataset(dataset, data_root, download, partial(progress, f"fetching {dataset}"))
        report = partial(progress, "features")
        if sharded:
            made = extract_shards(network, data, out, features=features, progress=report, team=team)
        else:
            made = extract_dataset(network, data, features=features, name=out.stem, progress=report, team=team)
    if not team.leads:
        return
    if not sharded:
        save_features(out, made, step=step)
    display.note(f"{len(made.train_y)} training and {len(made.test_y)} test rows of {made.kind} features in {out}")
