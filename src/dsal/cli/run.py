"""``dsal run``: one experiment, from data to results and a report."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from dsal.cli.options import Handling
    from dsal.evaluation.experiment import Experiment, Setting

_METHOD = "Options of the method"
_HANDLING = "How to run, and where"

# Every option is None unless given, so that files and presets can stand in for it.
Text = str | None
Flag = bool | None


def _option(help_text: str, default: str | bool = False, panel: str | None = None) -> Any:
    return typer.Option(help=help_text, show_default=default, rich_help_panel=panel)


def _flag(name: str, help_text: str, panel: str | None = None) -> Any:
    return typer.Option(name, help=help_text, show_default=False, rich_help_panel=panel)


def run(
    context: typer.Context,
    dataset: Annotated[
        Text,
        _option("Embedded features, a .safetensors file of features, or an image data set.", "cifar100-features"),
    ] = None,
    data_root: Annotated[Path | None, _option("Folder of the image data sets.")] = None,
    download: Annotated[Flag, _flag("--download", "Fetch an image data set that is not there.")] = None,
    backbone: Annotated[Text, _option("Architecture that the weights must be of.")] = None,
    weights: Annotated[Path | None, _option("File of backbone weights, for an image data set.")] = None,
    features: Annotated[Text, _option("Stages of the backbone: all or last.", "all")] = None,
    method: Annotated[Text, _option("Method to run.", "ds-al")] = None,
    phases: Annotated[int | None, _option("K, phases after the base phase.", "25")] = None,
    base_classes: Annotated[int | None, _option("Classes of the base phase.", "half of them")] = None,
    class_order: Annotated[Text, _option("natural, or the seed of a permutation (1993).", "natural")] = None,
    seeds: Annotated[Text, _option("Seeds, with commas: 0,1,2. Each is a run.", "0")] = None,
    expansion: Annotated[Text, _option("Kind of expansion.", "random", _METHOD)] = None,
    expansion_size: Annotated[int | None, _option("Width d_B of the expansion.", "4096", _METHOD)] = None,
    gamma: Annotated[float | None, _option("Ridge penalty.", "0.1", _METHOD)] = None,
    gamma_comp: Annotated[float | None, _option("Ridge penalty of the compensation.", "gamma", _METHOD)] = None,
    compensation: Annotated[float | None, _option("Compensation ratio C; 0 is ACIL.", "0.6", _METHOD)] = None,
    activation: Annotated[Text, _option("Activation of the compensation.", "tanh", _METHOD)] = None,
    paper: Annotated[Flag, _flag("--paper", "The paper's values: d_B = 8192 and all.")] = None,
    quick: Annotated[Flag, _flag("--quick", "A small run that ends in seconds.")] = None,
    config: Annotated[Path | None, _option("TOML file of options; the command line goes before it.")] = None,
    out: Annotated[Path | None, _option("Folder of the run.", "runs/NAME", _HANDLING)] = None,
    resume: Annotated[Flag, _flag("--resume", "Go on where a stopped run left off.", _HANDLING)] = None,
    checkpoint_seconds: Annotated[
        float | None, _option("Save the state after a phase, at most this often.", "30", _HANDLING)
    ] = None,
    json: Annotated[Flag, _flag("--json", "Print results.json instead of a table.", _HANDLING)] = None,
    report: Annotated[Flag, _flag("--report/--no-report", "Write the HTML page at the end.", _HANDLING)] = None,
    tensorboard: Annotated[Flag, _flag("--tensorboard", "Write TensorBoard events too.", _HANDLING)] = None,
) -> None:
    """Run one experiment: learn class by class, test after every phase, write results and a report.

    Results go to stdout, progress to stderr. Every option can also stand in the TOML file, by the same name.
    """
    from dsal.cli.options import combine, read_options

    given = {
        name: str(value) if isinstance(value, Path) else value
        for name, value in context.params.items()
        if value is not None and name != "config"
    }
    filed = {} if config is None else read_options(config)
    if given.get("resume", filed.get("resume")) and "out" in given:
        stored = Path(given["out"]) / "config.toml"
        filed = {**(read_options(stored) if stored.exists() else {}), **filed}
    _run(*combine(given, filed))


def _run(experiment: Experiment, handling: Handling) -> None:
    from dsal.cli.display import Display
    from dsal.cli.table import show_results
    from dsal.evaluation.experiment import prepare
    from dsal.evaluation.results import read_results
    from dsal.evaluation.runner import is_finished, run_experiment
    from dsal.evaluation.tensorboard import write_events

    display = Display()
    with display.preparation() as progress:
        setting = prepare(experiment, progress)
    out = Path(handling.out or _folder(setting))
    if not (handling.resume and is_finished(setting, out)):
        steps = run_experiment(setting, out, resume=handling.resume, checkpoint_seconds=handling.checkpoint_seconds)
        try:
            display.follow(steps, setting)
        except KeyboardInterrupt:
            display.note(f"stopped; go on with: dsal run --resume --out {out}")
            raise
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
