"""Running an experiment in a folder, seed by seed and phase by phase, so that a killed run can go on."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from time import monotonic
from typing import Any

from dsal.distributed import ALONE, Team
from dsal.errors import InputError
from dsal.evaluation.checkpoint import checkpoint_path, load_checkpoint, save_checkpoint
from dsal.evaluation.config import read_config, write_config
from dsal.evaluation.experiment import Setting
from dsal.evaluation.protocol import PhaseProgress, PhaseResult, run_phases
from dsal.evaluation.provenance import provenance
from dsal.evaluation.results import write_results
from dsal.methods import METHODS
from dsal.schema import Anything, Maybe, Record, Text
from dsal.store import atomic_write, read_json

_RECORD = Record({"data_sha256": Text(64), "weights_sha256": Maybe(Text(64))}, rest=Anything())


@dataclass(frozen=True)
class Step:
    """One phase of one seed, done or on the way; ``restored`` where it was read from an earlier run."""

    seed: int
    result: PhaseResult | PhaseProgress
    restored: bool


def run_experiment(
    setting: Setting, out: Path, *, resume: bool = False, checkpoint_seconds: float = 30.0, team: Team = ALONE
) -> Iterator[Step]:
    """Run all seeds and write the results; yields every phase as it is done, and progress inside of phases.

    In a team of processes the folder is rank 0's alone: it tells the others what they need of it.

    Args:
        setting: what to run.
        out: folder of the run, made where it is missing. One that holds a run of another configuration is refused.
        resume: go on from the state that a stopped run has left there; the results are those of an unbroken run.
        checkpoint_seconds: save the state after a phase, and at every step inside of one, if the last save is longer
            ago than this.
        team: the processes that share the work.

    Raises:
        InputError: ``out`` belongs to another configuration, or data and weights have changed since.
    """
    state = out / "state"
    origin = team.told(lambda: _open_folder(setting, out, team, resume=resume))
    results: dict[int, list[PhaseResult]] = {}
    stored_bytes = 0
    for seed in setting.experiment.seeds:
        path = checkpoint_path(state, seed)
        checkpoint = team.told(partial(load_checkpoint, path))
        done = [] if checkpoint is None else list(checkpoint.results)
        results[seed] = done
        yield from (Step(seed, result, restored=True) for result in done)
        if checkpoint is not None and checkpoint.state is None:
            stored_bytes = checkpoint.stored_bytes
            continue
        if checkpoint is None or checkpoint.state is None:
            method, start, learned = setting.build_method(seed), 0, 0.0
        else:
            method = METHODS.get(setting.experiment.method).restore(checkpoint.state, path)
            start, learned = checkpoint.phase, checkpoint.learned
        saved = monotonic()
        every = setting.experiment.eval_every
        for result in run_phases(method, setting.data, setting.scenario, start, every, learned=learned, team=team):
            inside = result if isinstance(result, PhaseProgress) else None
            if isinstance(result, PhaseResult):
                done.append(result)
            finished = inside is None and result.phase == setting.scenario.last
            if team.leads and (finished or monotonic() - saved >= checkpoint_seconds):
                stored_bytes = save_checkpoint(path, done, method, finished=finished, inside=inside)
                saved = monotonic()
            yield Step(seed, result, restored=False)
    if team.leads:
        write_results(out, setting, results, origin, stored_bytes)
        shutil.rmtree(state)


def is_finished(setting: Setting, out: Path) -> bool:
    """Whether ``out`` holds the results of just this configuration (a run that begins takes old results away)."""
    return (out / "results.json").is_file() and read_config(out) == setting.config


def _open_folder(setting: Setting, out: Path, team: Team, *, resume: bool) -> dict[str, Any]:
    """Make the folder ready to run in; returns the provenance of the run, which a resumed one keeps."""
    stored = read_config(out)
    if stored is not None and stored != setting.config:
        keys = sorted({*stored, *setting.config})
        differing = [key for key in keys if stored.get(key) != setting.config.get(key)]
        shown = ", ".join(f"{key} ({stored.get(key)} there, {setting.config.get(key)} here)" for key in differing)
        raise InputError(f"{out} holds a run of another configuration: {shown}. Give another folder.")
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
    with atomic_write(record) as temporary:
        temporary.write_text(json.dumps(origin, indent=1), encoding="utf-8")
    return origin
