"""``dsal run``: one experiment, from data to results. ``dsal report``: pages about runs. ``dsal tune``: gamma and C."""

from __future__ import annotations

import hashlib
import re
from json import dumps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dsal.base.options import EXPANSION_SIZE
from dsal.cli.arguments import (
    EXPERIMENT,
    METHOD,
    RARE,
    RUNNING,
    BackboneName,
    ClassOrder,
    DataRoot,
    flag,
    given,
    option,
    takes,
)
from dsal.cli.say import say

if TYPE_CHECKING:
    from dsal.cli.shared_options import RunOptions
    from dsal.protocol.experiment import Experiment, Setting


@takes(EXPERIMENT)
def run(
    context: typer.Context,
    method: Annotated[str | None, option("Method to run.", "ds-al")] = None,
    phases: Annotated[int | None, option("K, the number of phases after the base phase.", "25")] = None,
    expansion: Annotated[str | None, option("Kind of expansion.", "random", RARE)] = None,
    gamma: Annotated[str | None, option("Ridge penalty, or auto.", "0.1", METHOD)] = None,
    gamma_comp: Annotated[
        str | None, option("Ridge penalty of the compensation stream, or auto.", "gamma", RARE)
    ] = None,
    compensation: Annotated[str | None, option("Compensation ratio C, or auto; 0 gives ACIL.", "0.6", METHOD)] = None,
    activation: Annotated[str | None, option("Activation of the compensation stream.", "tanh", RARE)] = None,
    assignments: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="NAME=VALUE",
            help="Set any option of the method; the value is written as in TOML.",
            rich_help_panel=METHOD,
        ),
    ] = None,
    paper: Annotated[
        bool | None, flag("--paper", "Use the paper's settings: d_B = 8192, gamma = 0.1, C = 0.6, tanh.")
    ] = None,
    quick: Annotated[bool | None, flag("--quick", "A small run: K = 5, d_B = 1024.")] = None,
    config: Annotated[Path | None, option("TOML file with options; command-line options take precedence.")] = None,
    out: Annotated[Path | None, option("Folder for the results.", "runs/NAME", RUNNING)] = None,
    resume: Annotated[bool | None, flag("--resume", "Continue an interrupted run.", RUNNING)] = None,
    json: Annotated[bool | None, flag("--json", "Print results.json instead of a table.", RUNNING)] = None,
    tensorboard: Annotated[bool | None, flag("--tensorboard", "Also write TensorBoard events.", RARE)] = None,
    mlflow: Annotated[
        bool | None, flag("--mlflow", "Also log the run to MLflow, at MLFLOW_TRACKING_URI.", RARE)
    ] = None,
    **_: Any,
) -> None:
    """Run one experiment: learn phase by phase, test after every phase, write results and a report.

    Results go to stdout, progress to stderr. Every option can also be set in a TOML file (--config) under the same
    name. The method and its options have a table of their own there: see docs/results.md.
    """
    from dsal.cli.shared_options import combine, read_assignments, read_options

    asked = given(context, "config", "assignments")
    numbers = [f"{name}={asked.pop(name)}" for name in ("gamma", "gamma_comp", "compensation") if name in asked]
    asked |= read_assignments([*numbers, *(assignments or ())])
    filed = {} if config is None else read_options(config)
    if asked.get("resume", filed.get("resume")) and "out" in asked:
        stored = Path(asked["out"]) / "config.toml"
        filed = {**(read_options(stored) if stored.exists() else {}), **filed}
    _run(*combine(asked, filed))


def _run(experiment: Experiment, handling: RunOptions) -> None:
    from dsal.cli.display import Display
    from dsal.cli.processes import current_team
    from dsal.cli.table import show_results
    from dsal.integrations.needs import needs
    from dsal.protocol.experiment import prepare
    from dsal.protocol.results import read_results
    from dsal.protocol.runs import is_finished, run_experiment, write_events

    display, team = Display(), current_team()
    if handling.mlflow:
        needs("mlflow", "mlflow")  # before the work, not after it
    with display.preparation() as progress:
        setting = prepare(experiment, progress, team)
    out = Path(handling.out or _folder(setting))
    document = None
    if not (handling.resume and team.broadcast_result(lambda: is_finished(setting.config, out))):
        steps = run_experiment(
            setting, out, resume=handling.resume, checkpoint_seconds=handling.checkpoint_seconds, team=team
        )
        try:
            document = display.follow(steps, setting)
        except KeyboardInterrupt:
            display.note(f"stopped; continue with: dsal run --resume --out {out}")
            raise
    if not team.leads:
        return
    document = document or read_results(out)
    if handling.tensorboard:
        write_events(document, out / "tensorboard")
    show_results(document, as_json=handling.json)
    display.note(f"results in {out}")
    if handling.report:
        from dsal.report.page import build_report

        display.note(f"report in {build_report([out], out, [document])}")
    if handling.mlflow:
        from dsal.integrations.mlflow import log_run

        display.note(f"MLflow run {log_run(document, out)}")


def _folder(setting: Setting) -> Path:
    """Return a folder name that is always the same for a configuration: what it is, and a digest of all options."""
    config = setting.config
    digest = hashlib.sha256(dumps(config, sort_keys=True).encode()).hexdigest()[:8]
    name = re.sub(r"[^\w-]+", "-", setting.data.name)  # may come from an untrusted file
    return Path("runs") / f"{name}-{config['method']}-k{config['phases']}-{digest}"


def tune(
    dataset: Annotated[
        str, option("Embedded features, a file or folder of features, or an image data set.")
    ] = "cifar100-features",
    data_root: DataRoot = None,
    backbone: BackboneName = None,
    phases: Annotated[int, option("K, the number of phases after the base phase.")] = 25,
    base_classes: Annotated[int | None, option("Number of classes in the base phase.", "half of them")] = None,
    class_order: ClassOrder = "natural",
    expansion_size: Annotated[int, option("Width d_B of the expansion.")] = EXPANSION_SIZE,
    activation: Annotated[str, option("Activation of the compensation stream.")] = "tanh",
    seed: Annotated[int, option("Seed of the projection.")] = 0,
    check: Annotated[bool, flag("--check", "Also compare with the best of a grid on test data.")] = False,
    json: Annotated[bool, flag("--json", "Print JSON.")] = False,
) -> None:
    """Choose gamma and the compensation ratio C by leave-one-out predictions, without test data.

    gamma is chosen in phase 0; C is updated in every phase. No sample is kept.
    """
    from dsal.cli.display import Display
    from dsal.protocol.experiment import Experiment, prepare
    from dsal.reproduction.stream_training import check_choice, choose_values

    display = Display()
    experiment = Experiment(
        dataset=dataset,
        data_root=None if data_root is None else str(data_root),
        backbone=backbone,
        phases=phases,
        base_classes=base_classes,
        class_order=class_order,
        options={"expansion_size": expansion_size, "activation": activation},
        seeds=(seed,),
    )
    with display.preparation() as progress:
        setting = prepare(experiment, progress)
    ratios = []
    for chosen in choose_values(setting, size=expansion_size, activation=activation, seed=seed):
        display.note(f"phase {chosen.phase:>3}/{phases}  gamma {chosen.gamma:g}  C {chosen.ratio:.3f}")
        ratios.append(chosen.ratio)
    result = {"gamma": chosen.gamma, "compensation": ratios[-1], "compensation_by_phase": ratios}
    if check:
        found = check_choice(setting, chosen.gamma, ratios[-1], size=expansion_size, activation=activation, seed=seed)
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


def report(
    runs: Annotated[list[Path], typer.Argument(metavar="DIR...", help="Folders written by `dsal run --out`.")],
    out: Annotated[Path | None, option("Folder for the report.", "DIR, or ./report for several")] = None,
) -> None:
    """Write a self-contained HTML report of one or more runs, and its figures as PNG and PDF."""
    from dsal.report.page import build_report

    folder = out or (runs[0] if len(runs) == 1 else Path("report"))
    say(build_report(runs, folder))
