"""Checkpoints, so that a killed run can continue: the method and counts of one seed, in one file written atomically."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dsal.files.schema import ANY_ARRAY, ANY_TABLE, Array, Each, Flag, Maybe, Number, Record, Ruled, Schema, Text
from dsal.files.tensors import flat, load_tensors, save_tensors, under
from dsal.methods import Method, State
from dsal.protocol.metrics import ConfusionCounts, Tally
from dsal.protocol.phases import PhaseProgress, PhaseResult, other_readouts

_KIND = "run state"


@dataclass(frozen=True)
class Kept:
    """What a method keeps between phases, and what it trains.

    Attributes:
        stored_bytes: size of its state.
        stored_samples: images or feature vectors in it; None if they are not counted.
        trained_parameters: most weights that training changes in a phase; None if they are not counted.
    """

    stored_bytes: int = 0
    stored_samples: int | None = None
    trained_parameters: int | None = None


@dataclass(frozen=True)
class Checkpoint:
    """The state of one seed of a run.

    Attributes:
        results: of the tests so far, from phase 0 on.
        state: of the method; None once the seed is finished.
        kept: what the method keeps between phases, after the last phase done.
        phase: the phase to continue with; the method may have learned a part of it.
        learned: seconds spent learning since the last test.
    """

    results: tuple[PhaseResult, ...]
    state: State | None
    kept: Kept
    phase: int
    learned: float


def save_run_checkpoint(
    path: Path, results: Sequence[PhaseResult], method: Method, *, finished: bool, inside: PhaseProgress | None = None
) -> Kept:
    """Write the state of a seed atomically; a finished seed is saved without the method.

    Args:
        path: file to write.
        results: of the tests so far.
        method: the method in its current state.
        finished: whether the last phase has been tested.
        inside: progress within the next phase; None between two phases.

    Returns:
        What the method keeps between phases.
    """
    state = method.state()
    kept = Kept(state.nbytes, method.stored_samples, method.trained_parameters)
    arrays: dict[str, NDArray[Any]] = {}
    tallies = {"": [result.tally for result in results]}
    for readout in other_readouts(results):
        tallies[f".{readout}"] = [result.others[readout] for result in results]
    for name, suffix in product(("hits", "totals"), tallies):
        parts = [getattr(tally, name) for tally in tallies[suffix]]
        arrays[name + suffix] = np.concatenate([np.zeros(0), *parts]).astype(np.int64)
    arrays["seconds"] = np.array([(result.learn_seconds, result.evaluate_seconds) for result in results]).reshape(-1, 2)
    for result in results:
        if result.confusion is not None:
            arrays[f"cells{result.phase}"] = result.confusion.cells
            arrays[f"counts{result.phase}"] = result.confusion.counts
    facts = {
        "kind": _KIND,
        "phases": [result.phase for result in results],
        "seen": [len(result.tally) for result in results],
        "kept": [result.phase for result in results if result.confusion is not None],
        "readouts": other_readouts(results),
        **asdict(kept),
        "finished": finished,
        "inside": None if inside is None else [inside.phase, inside.learn_seconds],
    }
    if not finished:
        arrays |= flat({"method": state.arrays})
        facts["method"] = state.facts
    save_tensors(path, arrays, facts)
    return kept


def load_run_checkpoint(path: Path) -> Checkpoint | None:
    """Read what :func:`save_run_checkpoint` wrote; return None if there is no file yet.

    Raises:
        FileFormatError: the file is damaged. Delete it to start that seed again.
    """
    if not path.exists():
        return None
    arrays, facts = load_tensors(path, SCHEMA)
    ends = np.cumsum(facts["seen"])[:-1]
    parts = {name: np.split(arrays[name], ends) for name in arrays if name.startswith(("hits", "totals"))}
    readouts = facts["readouts"]
    results = tuple(
        PhaseResult(
            k,
            Tally(parts["hits"][i], parts["totals"][i]),
            ConfusionCounts(seen, arrays[f"cells{k}"], arrays[f"counts{k}"]) if k in facts["kept"] else None,
            float(arrays["seconds"][i, 0]),
            float(arrays["seconds"][i, 1]),
            {name: Tally(parts[f"hits.{name}"][i], parts[f"totals.{name}"][i]) for name in readouts},
        )
        for i, (k, seen) in enumerate(zip(facts["phases"], facts["seen"], strict=True))
    )
    state = None if facts["finished"] else State(under(arrays, "method"), facts["method"])
    phase, learned = facts["inside"] or (facts["phases"][-1] + 1, 0.0)
    kept = Kept(facts["stored_bytes"], facts["stored_samples"], facts["trained_parameters"])
    return Checkpoint(results, state, kept, phase, learned)


def _disagreement(facts: dict[str, Any]) -> str | None:
    inside, phases = facts["inside"], facts["phases"]
    if phases != sorted(set(phases)):
        return "phase numbers do not increase"
    if len(facts["seen"]) != len(phases) or not set(facts["kept"]) <= set(phases):
        return "its phases, the classes seen after each, and those with confusion counts do not agree"
    if inside is None and not phases:
        return "it has neither a finished phase nor one in progress"
    if inside is not None and (len(inside) != 2 or not isinstance(inside[0], int) or inside[0] < 0 or inside[1] < 0):
        return "inside must be a phase number and the seconds spent on it"
    return None if facts["finished"] or "method" in facts else "it lacks the state of the method"


def _arrays(facts: dict[str, Any]) -> dict[str, Array]:
    counted = Array("int64", (sum(facts["seen"]),), low=0)
    cells = {}
    for k, seen in zip(facts["phases"], facts["seen"], strict=True):
        if k in facts["kept"]:
            cells[f"cells{k}"] = Array("int64", (f"cells {k}",), low=0, high=seen**2 - 1)
            cells[f"counts{k}"] = Array("int32", (f"cells {k}",), low=1)
    return {
        "hits": counted,
        "totals": counted,
        **{rf"{part}\.{re.escape(name)}": counted for part in ("hits", "totals") for name in facts["readouts"]},
        "seconds": Array("float64", (len(facts["phases"]), 2), low=0),
        **cells,
        r"method\..*": ANY_ARRAY,
    }


_PHASE = Number(0, 10**6, whole=True)
SCHEMA = Schema(
    _KIND,
    Ruled(
        Record(
            {
                "phases": Each(_PHASE, most=10**5),
                "kept": Each(_PHASE, most=10**5),
                "seen": Each(Number(1, 10**5, whole=True), most=10**5),
                "stored_bytes": Number(0, 2**60, whole=True),
                "stored_samples": Maybe(Number(0, 2**60, whole=True)),
                "trained_parameters": Maybe(Number(0, 2**60, whole=True)),
                "readouts": Each(Text(50), most=10),
                "finished": Flag(),
                "inside": Maybe(Each(Number(0, 1e9), 2, 2)),
            },
            optional={"method": ANY_TABLE},  # of a seed that is not finished
        ),
        _disagreement,
    ),
    _arrays,
)
"""Schema of the file; the method checks its own part when it is restored."""
