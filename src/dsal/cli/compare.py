"""``dsal compare``: compare methods on equal terms: the same features, the same phases, the same tuning."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dsal.cli.arguments import EXPERIMENT, RUNNING, flag, given, option, takes
from dsal.cli.processes import run_child

if TYPE_CHECKING:
    from dsal.cli.display import Display
    from dsal.cli.shared_options import RunOptions
    from dsal.protocol.comparison import Options, PlannedRun
    from dsal.protocol.experiment import Experiment, Setting

_OWN = ("methods", "phases", "tune", "tune_on", "shared", "own")  # options that `dsal run` lacks or reads differently
_PASSING = ("out", "resume", "json", "report", "checkpoint_seconds")  # not stored for --resume


@takes(EXPERIMENT)
def compare(
    context: typer.Context,
    methods: Annotated[
        list[str] | None, typer.Argument(metavar="METHODS...", help="Names of methods.", show_default="all")
    ] = None,
    phases: Annotated[
        str | None, option("K, the number of phases after the base phase; or several: 5,25,50.", "25")
    ] = None,
    tune: Annotated[
        bool | None, flag("--tune/--no-tune", "Tune each method on held-out samples of the base phase.")
    ] = None,
    tune_on: Annotated[
        Path | None, option("Tune on these features of a proxy instead: see docs/comparison.md.")
    ] = None,
    config: Annotated[
        Path | None, option("TOML file of options, including those of methods; the command line overrides it.")
    ] = None,
    out: Annotated[Path | None, option("Folder for the results.", "runs/compare", RUNNING)] = None,
    resume: Annotated[bool | None, flag("--resume", "Continue an interrupted comparison.", RUNNING)] = None,
    json: Annotated[bool | None, flag("--json", "Print comparison.json instead of tables.", RUNNING)] = None,
    **_: Any,
) -> None:
    """Compare methods: tune each with the same budget, run each, print one table and write one report per K.

    Every run is a `dsal run` in its own process and folder, so memory is measured per method and an interrupted
    comparison can continue. Methods without randomness run once, whatever the seeds.
    """
    from dsal.cli.display import Display
    from dsal.cli.shared_options import combine, read_comparison
    from dsal.protocol.comparison import method_options
    from dsal.protocol.runs import read_config, write_config

    asked = given(context, "config")
    if config is not None:
        asked = {**read_comparison(config), **asked}
    folder = Path(asked.get("out", "runs/compare"))
    if resume:
        asked = {**(read_config(folder) or {}), **asked}
    common, handling = combine({name: asked[name] for name in asked if name not in _OWN}, {})
    names, counts = _methods(asked.get("methods")), _counts(asked.get("phases", [25]))
    options = {name: method_options(name, asked.get("shared", {}), asked.get("own", {})) for name in names}
    request = _Request(common, options, counts, asked.get("tune", True), asked.get("tune_on"), folder)
    folder.mkdir(parents=True, exist_ok=True)
    lasting = {name: value for name, value in asked.items() if name not in _PASSING}
    write_config(folder, {**lasting, "methods": names, "phases": counts})
    display = Display()
    try:
        _run_all(request, handling, display)
    except KeyboardInterrupt:
        display.note(f"stopped; continue with: dsal compare --resume --out {folder}")
        raise


@dataclass(frozen=True)
class _Request:
    """What to compare."""

    common: Experiment  # what all runs share
    methods: dict[str, Options]  # with the options of each
    phases: list[int]  # the values of K
    tune: bool
    proxy: str | None  # file of features to tune on
    folder: Path


def _run_all(request: _Request, handling: RunOptions, display: Display) -> None:
    from dsal.cli.table import show_comparison
    from dsal.protocol.comparison import write_comparison
    from dsal.protocol.results import read_results
    from dsal.protocol.runs import is_finished

    entries = _planned(request, display)  # all data are released again: every run loads its own
    documents: list[dict[str, Any]] = []
    began, ran = monotonic(), 0
    for number, (entry, config) in enumerate(entries, start=1):
        done = handling.resume and is_finished(config, entry.folder)
        what = f"{entry.experiment.method}, K = {entry.experiment.phases}"
        minutes = (monotonic() - began) / 60 * (len(entries) - number + 1) / max(1, ran)
        left = f"; about {minutes:.0f} min left" if ran else ""
        display.note(f"[{number}/{len(entries)}] {what}{': already done' if done else left}")
        if not done:
            _run(config, entry.folder, handling)
            ran += 1
        documents.append(read_results(entry.folder))
        comparison = write_comparison(request.folder, documents)  # after every run, in case it is stopped
    show_comparison(comparison, documents, as_json=handling.json)
    display.note(f"results in {request.folder}")
    if handling.report:
        from dsal.report.page import build_report

        for k in request.phases:
            runs = [(entry.folder, document) for (entry, _), document in zip(entries, documents, strict=True)]
            runs = [(folder, document) for folder, document in runs if document["config"]["phases"] == k]
            folders, own = zip(*sorted(runs, key=lambda run: -run[1]["average_accuracy"]["mean"]), strict=True)
            page = build_report(folders, request.folder / f"k{k}", own)
            display.note(f"report in {page}")


def _planned(request: _Request, display: Display) -> list[tuple[PlannedRun, dict[str, Any]]]:
    """Return the runs with their effective configurations, tuned if asked; raise errors before hours are spent."""
    from dsal.protocol.comparison import plan
    from dsal.protocol.experiment import prepare, settle

    entries = plan(request.common, request.phases, request.methods, request.folder)
    sources: dict[str, Setting] = {}  # by input of the methods: features or images
    with display.preparation() as progress:
        for entry in entries:
            if _inputs(entry.experiment.method) not in sources:
                sources[_inputs(entry.experiment.method)] = prepare(entry.experiment, progress)

    def config(experiment: Experiment) -> dict[str, Any]:
        source = sources[_inputs(experiment.method)]
        return settle(experiment, source.data, source.start).config

    configs = [config(entry.experiment) for entry in entries]
    if request.tune:
        chosen = _tuned(request, sources.get("features"), display)
        entries = plan(request.common, request.phases, chosen, request.folder)
        configs = [config(entry.experiment) for entry in entries]
    return list(zip(entries, configs, strict=True))


def _tuned(request: _Request, features: Setting | None, display: Display) -> dict[str, Options]:
    """Return the tuned options of each method; methods on images keep theirs, since each trial costs a training."""
    from dsal.data import load_features
    from dsal.protocol.comparison import (
        at_phases,
        base_tuning_data,
        of_method,
        proxy_tuning_data,
        read_tuning,
        tune_once,
    )

    common, proxy = request.common, request.proxy
    found: dict[str, Options] = dict(request.methods)
    if features is None:
        return found
    data = base_tuning_data(features) if proxy is None else proxy_tuning_data(load_features(proxy, common.features))
    for name, options in request.methods.items():
        if _inputs(name) == "features":
            for trial in tune_once(of_method(common, name, at_phases(options)), data, request.folder):
                display.note(f"tuning {name:<15} {_listed(trial.options):<42} held-out {trial.accuracy:6.2f}")
            found[name] = {**options, **read_tuning(request.folder)[name]["chosen"]}
    return found


def _run(config: dict[str, Any], out: Path, handling: RunOptions) -> None:
    """Run ``dsal run`` in its own process, so that the peak memory is that of this run."""
    from dsal.errors import DSALError
    from dsal.protocol.runs import write_config

    out.parent.mkdir(exist_ok=True)
    with TemporaryDirectory() as folder:
        write_config(Path(folder), config)
        arguments = ["run", "--config", f"{folder}/config.toml", "--out", str(out), "--no-report"]
        arguments += ["--checkpoint-seconds", str(handling.checkpoint_seconds)]
        code = run_child(arguments + ["--resume"] * handling.resume)
    if code == 130:
        raise KeyboardInterrupt
    if code:
        raise DSALError(f"the run in {out} failed; see the error above")


def _methods(asked: list[str] | None) -> list[str]:
    """Return the names of the methods, each once; by default all that learn from features."""
    from dsal.methods import METHODS

    if not asked:
        return [name for name in METHODS.names() if METHODS.get(name).inputs == "features"]
    for name in asked:
        METHODS.get(name)  # raises if it is unknown
    return list(dict.fromkeys(asked))


def _inputs(name: str) -> str:
    """Return what a method learns from."""
    from dsal.methods import METHODS

    return METHODS.get(name).inputs


def _counts(asked: str | list[int]) -> list[int]:
    """Return the values of K, each once."""
    from dsal.errors import InputError

    try:
        return list(dict.fromkeys(int(k) for k in (asked.split(",") if isinstance(asked, str) else asked)))
    except ValueError as error:
        raise InputError(f"phases must be numbers, as in 5,25,50; got {asked!r}") from error


def _listed(options: Options) -> str:
    return ", ".join(
        f"{name} {value:g}" if isinstance(value, float) else f"{name} {value}" for name, value in options.items()
    )
