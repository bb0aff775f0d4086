"""Run an experiment in a folder, seed by seed and phase by phase, so that a killed run can continue.

The folder has the effective configuration, ``config.toml``, with the method and its options in a separate table:

    dataset = "cifar100-features"
    phases = 25
    ...

    [method]
    name = "ds-al"
    gamma = 0.1
    ...

In memory and in ``results.json`` the configuration is flat.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Generator, Mapping
from dataclasses import dataclass, fields
from functools import partial
from pathlib import Path
from time import monotonic
from typing import Any

import tomli_w

from dsal.distributed import ALONE, Team
from dsal.errors import FileFormatError, InputError
from dsal.files.atomic import write_text
from dsal.files.schema import Anything, Maybe, Record, Text, read_json, write_json
from dsal.methods import METHODS
from dsal.protocol.experiment import Experiment, Setting
from dsal.protocol.phases import PhaseProgress, PhaseResult, run_phases
from dsal.protocol.provenance import provenance
from dsal.protocol.results import CURVES, write_results
from dsal.protocol.run_checkpoint import Kept, load_run_checkpoint, save_run_checkpoint

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

_TOP = {field.name for field in fields(Experiment)}
_RECORD = Record({"data_sha256": Text(64), "weights_sha256": Maybe(Text(64))}, rest=Anything())


def write_config(out: Path, config: Mapping[str, Any]) -> None:
    """Write the effective configuration as TOML, which ``dsal run --config`` reads."""
    table = dict(config)
    if "method" in config:  # a comparison has none
        own = {name: value for name, value in config.items() if name not in _TOP}
        table = {name: value for name, value in config.items() if name not in own}
        table["method"] = {"name": table.pop("method"), **own}  # last: in TOML, tables follow plain keys
    write_text(out / "config.toml", tomli_w.dumps(table))


def read_config(out: Path) -> dict[str, Any] | None:
    """Return the flat configuration of the run in a folder; None if there is none."""
    path = out / "config.toml"
    if not path.exists():
        return None
    try:
        return flat_config(tomllib.loads(path.read_text(encoding="utf-8")))
    except (ValueError, RecursionError) as error:
        raise FileFormatError(f"{path} is not TOML: {error}") from error


def flat_config(table: Mapping[str, Any]) -> dict[str, Any]:
    """Return a configuration with the options of its method at the top level.

    >>> flat_config({"phases": 5, "method": {"name": "ncm", "metric": "cosine"}})
    {'phases': 5, 'metric': 'cosine', 'method': 'ncm'}
    """
    method = table.get("method", {})
    own = dict(method) if isinstance(method, Mapping) else {"name": method}
    named = {"method": own.pop("name")} if "name" in own else {}
    return {**{name: value for name, value in table.items() if name != "method"}, **own, **named}


def write_events(document: Mapping[str, Any], folder: Path) -> None:
    """Write a results document as scalars by phase, one TensorBoard run per seed.

    Raises:
        InputError: TensorBoard is not installed.
    """
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError as error:
        raise InputError("TensorBoard is not installed: pip install 'dsal-learn[tensorboard]'") from error

    for number, seed in enumerate(document["seeds"]):
        with SummaryWriter(folder / f"seed{seed}") as writer:
            for phase in document["phases"]:
                for name in CURVES:
                    if phase[name] is not None:
                        writer.add_scalar(name, phase[name]["values"][number], phase["phase"])


@dataclass(frozen=True)
class Step:
    """One phase of one seed, finished or in progress; ``restored`` if it was read from an earlier run."""

    seed: int
    result: PhaseResult | PhaseProgress
    restored: bool


def run_experiment(
    setting: Setting, out: Path, *, resume: bool = False, checkpoint_seconds: float = 30.0, team: Team = ALONE
) -> Generator[Step, None, dict[str, Any] | None]:
    """Run all seeds and write the results; yield every finished phase, and progress within phases.

    In a team of processes, only rank 0 uses the folder; it sends the others what they need from it.

    Args:
        setting: what to run.
        out: folder of the run, created if missing. One that contains a run of another configuration is refused.
        resume: continue from the state that a stopped run left there; the results are those of an uninterrupted run.
        checkpoint_seconds: save the state after a phase, and at every step within one, if the last save was longer
            ago than this.
        team: the processes that share the work.

    Returns:
        The results document, on rank 0; it is the value of the generator's ``StopIteration``.

    Raises:
        InputError: ``out`` belongs to another configuration, or data or weights have changed since.
    """
    state = out / "state"
    origin = team.broadcast_result(lambda: _open_folder(setting, out, team, resume=resume))
    results: dict[int, list[PhaseResult]] = {}
    kept = Kept()
    for seed in setting.experiment.seeds:
        path = state / f"seed{seed}.safetensors"
        checkpoint = team.broadcast_result(partial(load_run_checkpoint, path))
        done = [] if checkpoint is None else list(checkpoint.results)
        results[seed] = done
        yield from (Step(seed, result, restored=True) for result in done)
        if checkpoint is None:
            method, start, learned = setting.build_method(seed), 0, 0.0
        elif checkpoint.state is None:
            kept = checkpoint.kept
            continue
        else:
            method = METHODS.get(setting.experiment.method).restore(checkpoint.state, path)
            start, learned = checkpoint.phase, checkpoint.learned
        saved = monotonic()
        results_of = run_phases(
            method,
            setting.data,
            setting.scenario,
            start,
            setting.experiment.eval_every,
            learned=learned,
            confusions=setting.experiment.confusions,
            team=team,
        )
        for result in results_of:
            inside = result if isinstance(result, PhaseProgress) else None
            if isinstance(result, PhaseResult):
                done.append(result)
            finished = inside is None and result.phase == setting.scenario.last
            if team.leads and (finished or monotonic() - saved >= checkpoint_seconds):
                kept = save_run_checkpoint(path, done, method, finished=finished, inside=inside)
                saved = monotonic()
            yield Step(seed, result, restored=False)
    if not team.leads:
        return None
    document = write_results(out, setting, results, origin, kept)
    shutil.rmtree(state)
    return document


def is_finished(config: Mapping[str, Any], out: Path) -> bool:
    """Return whether ``out`` holds results of exactly this configuration (a starting run deletes old results)."""
    return (out / "results.json").is_file() and read_config(out) == config


def _open_folder(setting: Setting, out: Path, team: Team, *, resume: bool) -> dict[str, Any]:
    """Prepare the folder for a run; return the provenance of the run, which a resumed run keeps."""
    stored = read_config(out)
    if stored is not None and stored != setting.config:
        keys = sorted({*stored, *setting.config})
        differing = [key for key in keys if stored.get(key) != setting.config.get(key)]
        shown = ", ".join(f"{key} ({stored.get(key)} there, {setting.config.get(key)} here)" for key in differing)
        raise InputError(f"{out} contains a run of another configuration: {shown}. Use another folder.")
    state, origin = out / "state", provenance(setting, team)
    record = state / "run.json"
    if resume and record.is_file():
        before: dict[str, Any] = read_json(record, _RECORD)
        for key in ("data_sha256", "weights_sha256"):
            if before[key] != origin[key]:
                raise InputError(f"{out} cannot be resumed: {key} was {before[key]} and is now {origin[key]}")
        return before
    shutil.rmtree(state, ignore_errors=True)
    for name in ("results.json", "phases.csv", "confusion.npz"):
        (out / name).unlink(missing_ok=True)
    state.mkdir(parents=True)
    write_config(out, setting.config)
    write_json(record, origin)
    return origin
