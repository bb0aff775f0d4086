"""``dsal compare``: methods on equal terms, on the same features, in the same phases, with the same tuning."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated

import typer

from dsal.cli import arguments
from dsal.cli.arguments import HANDLING, Flag, Text, flag, given, option

if TYPE_CHECKING:
    from dsal.cli.display import Display
    from dsal.cli.options import Handling
    from dsal.evaluation.compare import Options
    from dsal.evaluation.experiment import Experiment, Setting

_OWN = ("methods", "phases", "tune", "tune_on")  # options that `dsal run` has not, or takes otherwise
_PASSING = ("out", "resume", "json", "report", "checkpoint_seconds")  # not to be remembered for --resume


def compare(
    context: typer.Context,
    methods: Annotated[
        list[str] | None,
        typer.Argument(metavar="METHODS...", help="Names of methods.", show_default="all"),
    ] = None,
    dataset: arguments.Dataset = None,
    data_root: arguments.DataRoot = None,
    download: arguments.Download = None,
    backbone: arguments.Backbone = None,
    weights: arguments.Weights = None,
    features: arguments.Features = None,
    phases: Annotated[Text, option("K, phases after the base phase; several with commas: 5,25,50.", "25")] = None,
    base_classes: arguments.BaseClasses = None,
    class_order: arguments.ClassOrder = None,
    shots: arguments.Shots = None,
    eval_every: arguments.EvalEvery = None,
    seeds: arguments.Seeds = None,
    expansion_size: arguments.ExpansionSize = None,
    tune: Annotated[Flag, flag("--tune/--no-tune", "Choose options on held-out samples of the base phase.")] = None,
    tune_on: Annotated[Path | None, option("Features of a proxy to tune on instead: see docs/comparison.md.")] = None,
    out: Annotated[Path | None, option("Folder of the comparison.", "runs/compare", HANDLING)] = None,
    resume: Annotated[Flag, flag("--resume", "Go on where a stopped comparison left off.", HANDLING)] = None,
    checkpoint_seconds: arguments.CheckpointSeconds = None,
    json: Annotated[Flag, flag("--json", "Print comparison.json instead of tables.", HANDLING)] = None,
    report: arguments.Report = None,
) -> None:
    """Compare methods: tune each with the same budget, run each, show one table and write one report for each K.

    Every run is a `dsal run` in a process and a folder of its own: its memory is its own, and a stopped comparison
    goes on where it was. Seeds are for methods that draw something; others run once.
    """
    from dsal.cli.display import Display
    from dsal.cli.options import combine
    from dsal.evaluation.config import read_config, write_config

    asked = given(context)
    folder = Path(asked.get("out", "runs/compare"))
    if resume:
        asked = {**(read_config(folder) or {}), **asked}
    common, handling = combine({name: asked[name] for name in asked if name not in _OWN}, {})
    names, counts = _methods(asked.get("methods")), _counts(asked.get("phases", [25]))
    question = _Question(common, names, counts, asked.get("tune", True), asked.get("tune_on"), folder)
    folder.mkdir(parents=True, exist_ok=True)
    lasting = {name: value for name, value in asked.items() if name not in _PASSING}
    write_config(folder, {**lasting, "methods": names, "phases": counts})
    display = Display()
    try:
        _answer(question, handling, display)
    except KeyboardInterrupt:
        display.note(f"stopped; go on with: dsal compare --resume --out {folder}")
        raise


@dataclass(frozen=True)
class _Question:
    """What is to be compared."""

    common: Experiment  # what all runs share
    methods: list[str]
    phases: list[int]  # the values of K
    tune: bool
    proxy: str | None  # file of features to tune on
    folder: Path


def _answer(question: _Question, handling: Handling, display: Display) -> None:
    from dsal.cli.comparison_table import show_comparison
    from dsal.evaluation.compare import plan, write_comparison
    from dsal.evaluation.experiment import prepare, settle
    from dsal.evaluation.results import read_results
    from dsal.evaluation.runner import is_finished

    untuned: dict[str, Options] = {name: {} for name in question.methods}
    entries = plan(question.common, question.phases, untuned, question.folder)
    sources: dict[str, Setting] = {}  # by what methods take: features or images
    with display.preparation() as progress:
        for entry in entries:
            if _inputs(entry.experiment.method) not in sources:
                sources[_inputs(entry.experiment.method)] = prepare(entry.experiment, progress)

    def settled(experiment: Experiment) -> Setting:
        source = sources[_inputs(experiment.method)]
        return settle(experiment, source.data, source.start)

    for entry in entries:
        settled(entry.experiment)  # what cannot be run is refused before hours are spent
    if question.tune:
        chosen = _tuned(question, sources.get("features"), display)
        entries = plan(question.common, question.phases, chosen, question.folder)
    for number, entry in enumerate(entries, start=1):
        setting = settled(entry.experiment)
        done = handling.resume and is_finished(setting, entry.folder)
        what = f"{entry.experiment.method}, K = {entry.experiment.phases}"
        display.note(f"[{number}/{len(entries)}] {what}{': done before' * done}")
        if not done:
            _run(setting, entry.folder, handling)
    documents = [read_results(entry.folder) for entry in entries]
    show_comparison(write_comparison(question.folder, documents), documents, as_json=handling.json)
    display.note(f"results in {question.folder}")
    if handling.report:
        from dsal.report.page import build_report

        average = {entry.folder: d["average_accuracy"]["mean"] for entry, d in zip(entries, documents, strict=True)}
        for k in question.phases:
            folders = [entry.folder for entry in entries if entry.experiment.phases == k]
            page = build_report(sorted(folders, key=lambda folder: -average[folder]), question.folder / f"k{k}")
            display.note(f"report in {page}")


def _tuned(question: _Question, features: Setting | None, display: Display) -> dict[str, Options]:
    """The options that each method chooses; those on images keep theirs, which cost a training each to try."""
    from dsal.data.features import read_features
    from dsal.evaluation.compare import of_method, read_tuning, tune_once
    from dsal.evaluation.trials import base_ground, proxy_ground

    common, proxy = question.common, question.proxy
    untuned: dict[str, Options] = {name: {} for name in question.methods if _inputs(name) == "images"}
    if features is None:
        return untuned
    ground = base_ground(features) if proxy is None else proxy_ground(read_features(proxy, common.features))
    for name in (name for name in question.methods if name not in untuned):
        for trial in tune_once(of_method(common, name), ground, question.folder):
            display.note(f"tuning {name:<15} {_listed(trial.options):<42} held-out {trial.accuracy:6.2f}")
    found = read_tuning(question.folder)
    return {name: untuned[name] if name in untuned else found[name]["chosen"] for name in question.methods}


def _run(setting: Setting, out: Path, handling: Handling) -> None:
    """``dsal run`` in a process of its own, so that the peak of its memory is its own."""
    from dsal.errors import DSALError
    from dsal.evaluation.config import write_config

    out.parent.mkdir(exist_ok=True)
    with TemporaryDirectory() as folder:
        write_config(Path(folder), setting.config)
        command = [sys.executable, "-m", "dsal", "run", "--config", f"{folder}/config.toml", "--out", str(out)]
        command += ["--no-report", "--checkpoint-seconds", str(handling.checkpoint_seconds)]
        code = subprocess.run(command + ["--resume"] * handling.resume, stdout=subprocess.DEVNULL).returncode
    if code == 130:
        raise KeyboardInterrupt
    if code:
        raise DSALError(f"the run in {out} failed; see the error above")


def _methods(asked: list[str] | None) -> list[str]:
    """Names of methods, each once; all that learn from features where none is asked for."""
    from dsal.methods import METHODS

    if not asked:
        return [name for name in METHODS.names() if METHODS.get(name).inputs == "features"]
    for name in asked:
        METHODS.get(name)  # an unknown one is refused at once
    return list(dict.fromkeys(asked))


def _inputs(name: str) -> str:
    """What a method learns from."""
    from dsal.methods import METHODS

    return METHODS.get(name).inputs


def _counts(asked: str | list[int]) -> list[int]:
    """The values of K, each once."""
    from dsal.errors import InputError

    try:
        return list(dict.fromkeys(int(k) for k in (asked.split(",") if isinstance(asked, str) else asked)))
    except ValueError as error:
        raise InputError(f"phases must be numbers, as in 5,25,50; got {asked!r}") from error


def _listed(options: Options) -> str:
    return ", ".join(
        f"{name} {value:g}" if isinstance(value, float) else f"{name} {value}" for name, value in options.items()
    )
