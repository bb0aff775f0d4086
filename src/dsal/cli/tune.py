"""``dsal tune``: gamma and C from training samples alone."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dsal.base.defaults import EXPANSION_SIZE
from dsal.cli.say import say


def tune(
    dataset: Annotated[
        str, typer.Option(help="Embedded features, a file of features, or an image data set.")
    ] = "cifar100-features",
    data_root: Annotated[Path | None, typer.Option(help="Folder with the image data sets.", show_default=False)] = None,
    weights: Annotated[
        Path | None, typer.Option(help="File of backbone weights, for images.", show_default=False)
    ] = None,
    phases: Annotated[int, typer.Option(help="K, the number of phases after the base phase.")] = 25,
    base_classes: Annotated[
        int | None, typer.Option(help="Number of classes in the base phase.", show_default="half of them")
    ] = None,
    class_order: Annotated[str, typer.Option(help="natural, or the seed of a permutation, such as 1993.")] = "natural",
    expansion_size: Annotated[int, typer.Option(help="Width d_B of the expansion.")] = EXPANSION_SIZE,
    activation: Annotated[str, typer.Option(help="Activation of the compensation stream.")] = "tanh",
    seed: Annotated[int, typer.Option(help="Seed of the projection.")] = 0,
    check: Annotated[bool, typer.Option("--check", help="Also compare with the best of a grid on test data.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Choose gamma and the compensation ratio C by leave-one-out predictions, without test data.

    gamma is chosen in phase 0; C is updated in every phase. No sample is kept.
    """
    from json import dumps

    from dsal.cli.display import Display
    from dsal.protocol.experiment import Experiment, prepare
    from dsal.reproduction import auto

    display = Display()
    experiment = Experiment(
        dataset=dataset,
        data_root=None if data_root is None else str(data_root),
        weights=None if weights is None else str(weights),
        phases=phases,
        base_classes=base_classes,
        class_order=class_order,
        options={"expansion_size": expansion_size, "activation": activation},
        seeds=(seed,),
    )
    with display.preparation() as progress:
        setting = prepare(experiment, progress)
    ratios = []
    for chosen in auto.tune(setting, size=expansion_size, activation=activation, seed=seed):
        display.note(f"phase {chosen.phase:>3}/{phases}  gamma {chosen.gamma:g}  C {chosen.ratio:.3f}")
        ratios.append(chosen.ratio)
    result = {
        "gamma": chosen.gamma,
        "compensation": ratios[-1],
        "compensation_by_phase": ratios,
    }
    if check:
        found = auto.check(setting, chosen.gamma, ratios[-1], size=expansion_size, activation=activation, seed=seed)
        result["check"] = {**vars(found), "loss": found.loss}
    if json:
        say(dumps(result, indent=1))
        return
    say(f"gamma {chosen.gamma:g}\ncompensation {ratios[-1]:.3f}")
    if check:
        say(
            f"last accuracy on test {found.last:.2f}; best of the grid {found.best_last:.2f} at gamma "
            f"{found.best_gamma:g}, C {found.best_ratio:g}: {found.loss:.2f} points less"
        )
