"""A run that can be killed: the method and the counts of one seed, in one file that is whole or not there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dsal.evaluation.protocol import PhaseProgress, PhaseResult
from dsal.methods import Method, State
from dsal.schema import ANY_ARRAY, ANY_TABLE, Array, Each, Flag, Maybe, Number, Record, Ruled, Schema
from dsal.store import load_tensors, save_tensors

_KIND = "run state"


@dataclass(frozen=True)
class Checkpoint:
    """Where one seed of a run stands.

    Attributes:
        results: of the tests done, from phase 0 on.
        state: of the method; None once the seed is finished.
        stored_bytes: what the method keeps between phases, after the last phase done.
        phase: the one to go on with; the method may have learned a part of it.
        learned: seconds that learning has taken since the last test.
    """

    results: tuple[PhaseResult, ...]
    state: State | None
    stored_bytes: int
    phase: int
    learned: float


def checkpoint_path(folder: Path, seed: int) -> Path:
    """The file of a seed in the folder of a run's state."""
    return folder / f"seed{seed}.safetensors"


def save_checkpoint(
    path: Path,
    results: Sequence[PhaseResult],
    method: Method,
    *,
    finished: bool,
    inside: PhaseProgress | None = None,
) -> int:
    """Write the standing of a seed, atomically; a finished one needs no method any more.

    Args:
        path: file to write.
        results: of the tests done.
        method: as it is now.
        finished: whether the last phase was tested.
        inside: how far the next phase has been learned; None between two phases.

    Returns:
        The bytes that the method keeps between phases.
    """
    state = method.state()
    arrays = {f"counts{result.phase}": result.counts for result in results}
    arrays["seconds"] = np.array([(result.learn_seconds, result.evaluate_seconds) for result in results]).reshape(-1, 2)
    facts = {
        "kind": _KIND,
        "phases": [result.phase for result in results],
        "stored_bytes": state.nbytes,
        "finished": finished,
        "inside": None if inside is None else [inside.phase, inside.learn_seconds],
    }
    if not finished:
        arrays.update({f"method.{name}": array for name, array in state.arrays.items()})
        facts["method"] = state.facts
    save_tensors(path, arrays, facts)
    return state.nbytes


def load_checkpoint(path: Path) -> Checkpoint | None:
    """Read what :func:`save_checkpoint` wrote; None where nothing has been written yet.

    Raises:
        FileFormatError: the file is damaged. Delete it to begin that seed again.
    """
    if not path.exists():
        return None
    arrays, facts = load_tensors(path, SCHEMA)
    results = tuple(
        PhaseResult(k, arrays[f"counts{k}"], float(learn), float(evaluate))
        for k, (learn, evaluate) in zip(facts["phases"], arrays["seconds"], strict=True)
    )
    own = {name.removeprefix("method."): array for name, array in arrays.items() if name.startswith("method.")}
    state = None if facts["finished"] else State(own, facts["method"])
    phase, learned = facts.get("inside") or (facts["phases"][-1] + 1, 0.0)
    return Checkpoint(results, state, facts["stored_bytes"], phase, learned)


def _disagreement(facts: dict[str, Any]) -> str | None:
    inside, phases = facts.get("inside"), facts["phases"]
    if phases != sorted(set(phases)):
        return "phases do not count up"
    if inside is None and not phases:
        return "it neither has a phase nor is inside of one"
    if inside is not None and (len(inside) != 2 or not isinstance(inside[0], int) or inside[0] < 0 or inside[1] < 0):
        return "inside must be the number of a phase and the seconds it has taken"
    return None if facts["finished"] or "method" in facts else "it lacks the state of the method"


def _arrays(facts: dict[str, Any]) -> dict[str, Array]:
    counts = {f"counts{k}": Array("int32", (f"seen {k}", f"seen {k}"), low=0) for k in facts["phases"]}
    return {**counts, "seconds": Array("float64", (len(facts["phases"]), 2), low=0), r"method\..*": ANY_ARRAY}


_PHASE = Number(0, 10**6, whole=True)
SCHEMA = Schema(
    _KIND,
    Ruled(
        Record(
            {"phases": Each(_PHASE, most=10**5), "stored_bytes": Number(0, 2**60, whole=True), "finished": Flag()},
            optional={"inside": Maybe(Each(Number(0, 1e9), 2, 2)), "method": ANY_TABLE},
        ),
        _disagreement,
    ),
    _arrays,
)
"""What the file must hold; the method checks its own part of it when it is restored."""
