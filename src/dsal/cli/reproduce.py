"""``dsal reproduce``: the paper's tables and figures, in one command that can be interrupted and run again."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dsal.cli.arguments import DataRoot, flag, option, seeds_option
from dsal.cli.say import say

if TYPE_CHECKING:
    from dsal.cli.display import Display
    from dsal.data import DataSet
    from dsal.reproduction.forecast import Cost
    from dsal.reproduction.plan import Plan


@dataclass(frozen=True)
class _Images:
    """A data set of images, and how to make its features; see the options of the command."""

    data: DataSet
    dataset: str
    data_root: Path | None
    backbone: str | None
    recipe: str
    epochs: int | None
    size: int
    features: str


CHARACTERS = "omniglot-features"  # of Fig. 6
WEIGHTS, FEATURES = "backbone.safetensors", "features"
"""What a reproduction from images creates first in its folder."""


def reproduce(
    what: Annotated[
        list[str] | None,
        typer.Argument(metavar="[table1|table2|fig3|fig4|fig5|fig6|all]...", help="What to reproduce; all by default."),
    ] = None,
    out: Annotated[Path, option("Folder for the results; what it contains is not computed again.")] = Path(
        "reproduction"
    ),
    dataset: Annotated[
        str,
        option(
            "Features (embedded, a file or a folder), or images: imagenet, imagenet100, or your own folder.",
            metavar="FEATURES|NAME|FOLDER",
        ),
    ] = "cifar100-features",
    data_root: DataRoot = None,
    expansion_size: Annotated[
        int | None, option("Width d_B of the expansion.", "8192; 16384 for ImageNet, as in the paper")
    ] = None,
    seeds: Annotated[str | None, seeds_option("Seeds of the projection.", "0,1,2")] = None,
    quick: Annotated[bool, flag("--quick", "A tiny version of everything, to see it work.")] = False,
    backbone: Annotated[
        str | None, option("Pretrained backbone to use instead of training one.", panel="From images")
    ] = None,
    recipe: Annotated[str, option("How to train the backbone: see dsal pretrain.", panel="From images")] = "imagenet",
    epochs: Annotated[int | None, option("Epochs of base training.", "the recipe's", "From images")] = None,
    size: Annotated[int, option("Side of the images in pixels.", panel="From images")] = 224,
    features: Annotated[str, option("Kind of features; last is the paper's.", panel="From images")] = "last",
    plan: Annotated[
        bool, flag("--plan", "Only estimate time, memory and disk; measuring takes about a minute.")
    ] = False,
) -> None:
    """Reproduce tables and figures of the paper; results, figures and pages go to a folder.

    Given images, it first trains a backbone on the base classes and extracts features. Run it again to continue after
    an interruption. Progress goes to stderr, the paths of the pages to stdout.
    """
    from dsal.cli.display import Display
    from dsal.cli.shared_options import read_seeds
    from dsal.data import feature_set_names, holds_images, load_dataset
    from dsal.reproduction.plan import Plan, paper_options
    from dsal.reproduction.plan import quick as quick_plan
    from dsal.reproduction.reproduction import reproduce as steps_of
    from dsal.reproduction.reproduction import write_documents

    display = Display()
    options: dict[str, Any] = {"dataset": dataset}
    images: _Images | None = None
    if holds_images(dataset):
        data = load_dataset(dataset, data_root)
        images = _Images(data, dataset, data_root, backbone, recipe, epochs, size, features)
        options = {**paper_options(data.name, len(data.class_names)), "dataset": str(out / FEATURES)}
        if quick:
            options |= {"expansion_size": 256, "phases": options["phases"][:2], "growing": options["growing"][:2]}
    characters = CHARACTERS if images is None and CHARACTERS in feature_set_names() else None
    options = {
        **options,
        "characters": characters,
        "data_root": None if data_root is None else str(data_root),
        **({} if expansion_size is None else {"expansion_size": expansion_size}),
        **({} if seeds is None else {"seeds": read_seeds(seeds)}),
    }
    chosen = quick_plan(**options) if quick else Plan(**options)
    what = what or ["all"]
    if plan:
        _forecast(what, chosen, images, display)
        return
    if images is not None:
        _features(images, out)
    elif characters is None:
        display.note(f"Fig. 6 is on CIFAR-100 only: {CHARACTERS} is not available")
    with display.bar() as bar:
        task = bar.add_task("training", total=None)
        for step in steps_of(what, chosen, out):
            display.note(f"{step.done}/{step.total}  {step.note}")
            bar.update(task, completed=step.done, total=step.total)
    for path in write_documents(out):
        say(path)


def _features(images: _Images, out: Path) -> None:
    """Train the backbone and extract its features, unless that is already done."""
    from dsal.cli.pretrain import extract, pretrain
    from dsal.data.features.shards import is_sharded

    source: dict[str, Any] = {"dataset": images.dataset, "data_root": images.data_root}
    trained = out / WEIGHTS
    if images.backbone is None and not trained.exists():
        own: dict[str, Any] = {"recipe": images.recipe, "epochs": images.epochs, "size": images.size, "flip": False}
        pretrain(out=trained, **source, **own, resume=trained.with_name(trained.name + ".checkpoint").exists())
    if not is_sharded(out / FEATURES):
        extract(backbone=images.backbone or str(trained), out=out / FEATURES, **source, features=images.features)


def _forecast(what: list[str], plan: Plan, images: _Images | None, display: Display) -> None:
    """Measure this machine and print the estimated time, memory and disk."""
    from dsal.backbones.pretrained import open_backbone
    from dsal.data import Scenario
    from dsal.protocol.experiment import Experiment, prepare
    from dsal.reproduction.forecast import extraction_cost, measure_rates, pretraining_cost, training_costs
    from dsal.reproduction.reproduction import chosen_items
    from dsal.training import RECIPES, choose_device

    def shape(dataset: str) -> dict[str, Any]:
        setting = prepare(Experiment(dataset=dataset, phases=plan.phases[0]), lambda what, done, total: None)
        x, labels = setting.features.train_x, (setting.features.train_y, setting.features.test_y)
        return {"width": x.shape[1], "labels": labels, "classes": len(setting.data.class_names)}

    needs = [need for item in chosen_items(what) for need in item.needs(plan)]
    shapes: dict[str, dict[str, Any]] = {}
    costs: list[Cost] = []
    if images is not None:
        data, device, recipe = images.data, choose_device(), RECIPES.get(images.recipe)
        if images.backbone is None:
            display.note("measuring base training")
            scenario = Scenario.deal(len(data.class_names), phases=plan.phases[0])
            recipe = recipe if images.epochs is None else replace(recipe, epochs=images.epochs)
            cost, backbone = pretraining_cost(data.at(images.size, 3), scenario, recipe, "resnet18", device, None)
            costs.append(cost)
        else:
            backbone = open_backbone(images.backbone).to(device)
        display.note("measuring the extraction of features")
        costs.append(extraction_cost(data, backbone, images.features))
        labels = data.train.labels.numpy(), data.test.labels.numpy()
        width, classes = backbone.widths[images.features], len(data.class_names)
        shapes[plan.dataset] = {"width": width, "labels": labels, "classes": classes}
    display.note("measuring linear algebra")
    rates = measure_rates()
    for dataset in dict.fromkeys(need.dataset for need in needs):
        of_set = [need for need in needs if need.dataset == dataset]
        shaped = shapes.get(dataset) or shape(dataset)
        costs += training_costs(of_set, rates, size=plan.size(dataset), **shaped)
    for line in _table(costs):
        say(line)


def _table(costs: list[Cost]) -> list[str]:
    """Return one line per step, and one for the total."""
    lines = [f"{'':<64}{'time':>10}{'memory':>10}{'disk':>10}"]

    def line(name: str, seconds: float, memory: int, disk: int) -> None:
        lines.append(f"{name:<64}{_duration(seconds):>10}{memory / 1e9:>7.1f} GB{disk / 1e9:>7.2f} GB")

    for cost in costs:
        name = cost.name if cost.times == 1 else f"{cost.name}: {cost.times} trainings"
        line(name, cost.times * cost.seconds, cost.memory, cost.times * cost.disk)
    seconds, disk = sum(cost.times * cost.seconds for cost in costs), sum(cost.times * cost.disk for cost in costs)
    line("total", seconds, max(cost.memory for cost in costs), disk)
    return lines


def _duration(seconds: float) -> str:
    """Format a time in seconds, minutes, hours or days.

    >>> _duration(42), _duration(4200), _duration(420000)
    ('42 s', '1.2 h', '4.9 days')
    """
    for unit, length, most in (("s", 1, 100), ("min", 60, 60), ("h", 3600, 48)):
        if seconds < most * length:
            return f"{seconds / length:.0f} {unit}" if unit != "h" else f"{seconds / length:.1f} h"
    return f"{seconds / 86400:.1f} days"
