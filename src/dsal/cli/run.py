"""``dsal run``: one experiment, from data to results and a report."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dsal.cli.arguments import EXPERIMENT, METHOD, RARE, RUNNING, Flag, Text, flag, given, option, takes

if TYPE_CHECKING:
    from dsal.cli.shared_options import RunOptions
    from dsal.protocol.experiment import Experiment, Setting


@takes(EXPERIMENT)
def run(
    context: typer.Context,
    method: Annotated[Text, option("Method to run.", "ds-al")] = None,
    phases: Annotated[int | None, option("K, the number of phases after the base phase.", "25")] = None,
    expansion: Annotated[Text, option("Kind of expansion.", "random", RARE)] = None,
    gamma: Annotated[Text, option("Ridge penalty, or auto.", "0.1", METHOD)] = None,
    gamma_comp: Annotated[Text, option("Ridge penalty of the compensation stream, or auto.", "gamma", RARE)] = None,
    compensation: Annotated[Text, option("Compensation ratio C, or auto; 0 gives ACIL.", "0.6", METHOD)] = None,
    activation: Annotated[Text, option("Activation of the compensation stream.", "tanh", RARE)] = None,
    assignments: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="NAME=VALUE",
            help="Set any option of the method; the value is written as in TOML.",
            rich_help_panel=METHOD,
        ),
    ] = None,
    paper: Annotated[Flag, flag("--paper", "Use the paper's settings: d_B = 8192, gamma = 0.1, C = 0.6, tanh.")] = None,
    quick: Annotated[Flag, flag("--quick", "A small run: K = 5, d_B = 1024.")] = None,
    config: Annotated[Path | None, option("TOML file with options; command-line options take precedence.")] = None,
    out: Annotated[Path | None, option("Folder for the results.", "runs/NAME", RUNNING)] = None,
    resume: Annotated[Flag, flag("--resume", "Continue an interrupted run.", RUNNING)] = None,
    json: Annotated[Flag, flag("--json", "Print results.json instead of a table.", RUNNING)] = None,
    tensorboard: Annotated[Flag, flag("--tensorboard", "Also write TensorBoard events.", RARE)] = None,
    mlflow: Annotated[Flag, flag("--mlflow", "Also log the run to MLflow, at MLFLOW_TRACKING_URI.", RARE)] = None,
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
    from dsal.protocol.runs import is_finished, run_experiment
    from dsal.protocol.tensorboard import write_events

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
    import hashlib
    import re
    from json import dumps

    config = setting.config
    digest = hashlib.sha256(dumps(config, sort_keys=True).encode()).hexdigest()[:8]
    name = re.sub(r"[^\w-]+", "-", setting.data.name)  # may come from an untrusted file
    return Path("runs") / f"{name}-{config['method']}-k{config['phases']}-{digest}"
