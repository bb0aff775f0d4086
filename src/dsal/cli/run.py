"""``dsal run``: one experiment, from data to results and a report."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dsal.cli import arguments
from dsal.cli.arguments import HANDLING, METHOD, Flag, Text, flag, given, option

if TYPE_CHECKING:
    from dsal.cli.options import Handling
    from dsal.evaluation.experiment import Experiment, Setting


def run(
    context: typer.Context,
    dataset: arguments.Dataset = None,
    data_root: arguments.DataRoot = None,
    download: arguments.Download = None,
    backbone: arguments.Backbone = None,
    weights: arguments.Weights = None,
    features: arguments.Features = None,
    method: Annotated[Text, option("Method to run.", "ds-al")] = None,
    phases: Annotated[int | None, option("K, phases after the base phase.", "25")] = None,
    base_classes: arguments.BaseClasses = None,
    class_order: arguments.ClassOrder = None,
    shots: arguments.Shots = None,
    eval_every: arguments.EvalEvery = None,
    seeds: arguments.Seeds = None,
    expansion: Annotated[Text, option("Kind of expansion.", "random", METHOD)] = None,
    expansion_size: arguments.ExpansionSize = None,
    gamma: Annotated[Text, option("Ridge penalty, or auto.", "0.1", METHOD)] = None,
    gamma_comp: Annotated[Text, option("Ridge penalty of the compensation, or auto.", "gamma", METHOD)] = None,
    compensation: Annotated[Text, option("Compensation ratio C, or auto; 0 is ACIL.", "0.6", METHOD)] = None,
    activation: Annotated[Text, option("Activation of the compensation.", "tanh", METHOD)] = None,
    assignments: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="NAME=VALUE",
            help="Any option of the method; the value as in TOML.",
            rich_help_panel=METHOD,
        ),
    ] = None,
    paper: Annotated[Flag, flag("--paper", "The paper's values: d_B = 8192 and all.")] = None,
    quick: Annotated[Flag, flag("--quick", "A small run that ends in seconds.")] = None,
    config: Annotated[Path | None, option("TOML file of options; the command line overrides it.")] = None,
    out: Annotated[Path | None, option("Folder of the run.", "runs/NAME", HANDLING)] = None,
    resume: Annotated[Flag, flag("--resume", "Go on where a stopped run left off.", HANDLING)] = None,
    checkpoint_seconds: arguments.CheckpointSeconds = None,
    json: Annotated[Flag, flag("--json", "Print results.json instead of a table.", HANDLING)] = None,
    report: arguments.Report = None,
    tensorboard: Annotated[Flag, flag("--tensorboard", "Write TensorBoard events too.", HANDLING)] = None,
) -> None:
    """Run one experiment: learn class by class, test after every phase, write results and a report.

    Results go to stdout, progress to stderr. Every option can also be set in the TOML file, by the same name; options
    of the method are in its table [method], beside the method's own name.
    """
    from dsal.cli.options import combine, read_assignments, read_options

    asked = given(context, "config", "assignments")
    numbers = [f"{name}={asked.pop(name)}" for name in ("gamma", "gamma_comp", "compensation") if name in asked]
    asked |= read_assignments([*numbers, *(assignments or ())])
    filed = {} if config is None else read_options(config)
    if asked.get("resume", filed.get("resume")) and "out" in asked:
        stored = Path(asked["out"]) / "config.toml"
        filed = {**(read_options(stored) if stored.exists() else {}), **filed}
    _run(*combine(asked, filed))


def _run(experiment: Experiment, handling: Handling) -> None:
    from dsal.cli.display import Display
    from dsal.cli.table import show_results
    from dsal.distributed import current
    from dsal.evaluation.experiment import prepare
    from dsal.evaluation.results import read_results
    from dsal.evaluation.runner import is_finished, run_experiment
    from dsal.evaluation.tensorboard import write_events

    display, team = Display(), current()
    with display.preparation() as progress:
        setting = prepare(experiment, progress, team)
    out = Path(handling.out or _folder(setting))
    if not (handling.resume and team.told(lambda: is_finished(setting, out))):
        steps = run_experiment(
            setting, out, resume=handling.resume, checkpoint_seconds=handling.checkpoint_seconds, team=team
        )
        try:
            display.follow(steps, setting)
        except KeyboardInterrupt:
            display.note(f"stopped; go on with: dsal run --resume --out {out}")
            raise
    if not team.leads:
        return
    document = read_results(out)
    if handling.tensorboard:
        write_events(document, out / "tensorboard")
    show_results(document, as_json=handling.json)
    display.note(f"results in {out}")
    if handling.report:
        from dsal.report.page import build_report

        display.note(f"report in {build_report([out], out)}")


def _folder(setting: Setting) -> Path:
    """A name that the same configuration finds again: what it is, and a digest of all options."""
    import hashlib
    import re
    from json import dumps

    config = setting.config
    digest = hashlib.sha256(dumps(config, sort_keys=True).encode()).hexdigest()[:8]
    name = re.sub(r"[^\w-]+", "-", setting.data.name)  # which may come from a stranger's file
    return Path("runs") / f"{name}-{config['method']}-k{config['phases']}-{digest}"
