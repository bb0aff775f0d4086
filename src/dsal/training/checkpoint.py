"""Checkpoints of base training: the whole state after any step, in one file that is complete or absent.

A training killed at any moment therefore continues to the same weights as one that was never interrupted (same
machine, same number of threads).
"""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from dsal.errors import FileFormatError, InputError
from dsal.files.schema import ANY_TABLE, Array, Each, Maybe, Number, Record, Ruled, Schema, like
from dsal.files.tensors import load_tensors, save_tensors, under
from dsal.training.loop import BaseTraining, EpochResult
from dsal.training.optimiser import STATE
from dsal.training.recipe import Recipe

KIND = "training checkpoint"
_PERCENT = Number(0, 100)
_EPOCH = Record(
    {
        "epoch": Number(1, 10**9, whole=True),
        "epochs": Number(1, 10**9, whole=True),
        "loss": Number(),
        "accuracy": _PERCENT,
        "held_out_accuracy": Maybe(_PERCENT),
        "seconds": Number(0),
    }
)
_FACTS = Record(
    {
        "identity": ANY_TABLE,
        "history": Each(_EPOCH),
        "scaler": ANY_TABLE,
        "done": Number(0, 2**53, whole=True),
        "loss": Number(),
        "hits": Number(0, 2**53, whole=True),
    }
)
_RANDOM = Array("uint8", (len(torch.Generator().get_state()),))


def save_checkpoint(path: Path, training: BaseTraining) -> None:
    """Write everything that the rest of a training depends on.

    Of several ranks, rank 0 writes; within an epoch, after all have called ``training.fit.gather_sums_``.
    """
    tensors = {f"model.{name}": value for name, value in training.model.state_dict().items()}
    meta = {
        "kind": KIND,
        "identity": _identity(training),
        "history": [asdict(result) for result in training.history],
        **training.fit.facts(),
    }
    save_tensors(path, {**tensors, **training.fit.arrays()}, meta)


def load_checkpoint(path: Path, training: BaseTraining) -> None:
    """Restore a training to the state of a checkpoint.

    Raises:
        InputError: the checkpoint is of another training; the message says what differs.
        FileFormatError: the file is truncated or corrupt or not a checkpoint.
    """
    tensors, meta = training.team.broadcast_result(partial(load_tensors, path, _schema(training, path)))
    rest = {name: value for name, value in tensors.items() if not name.startswith("model.")}
    try:
        model = under(tensors, "model")
        training.model.load_state_dict({name: torch.from_numpy(value) for name, value in model.items()})
        training.history = [EpochResult(**result) for result in meta["history"]]
        sums = {} if training.team.leads else {"loss": 0.0, "hits": 0}
        training.fit.restore(rest, {**meta, **sums})
    except (KeyError, RuntimeError, TypeError) as error:
        raise FileFormatError(f"{path} is not a usable checkpoint: {error}") from error


def _schema(training: BaseTraining, path: Path) -> Schema:
    """Return the schema of a checkpoint of this training."""

    def arrays(facts: dict[str, Any]) -> dict[str, Array]:
        theirs, mine = facts["identity"], _identity(training)
        differing = [
            f"{key}: {theirs.get(key)} there, {mine[key]} here" for key in mine if theirs.get(key) != mine[key]
        ]
        if differing:
            raise InputError(
                f"{path} is a checkpoint of another training ({'; '.join(differing)}); choose another output"
            )
        fit = training.fit
        average = {} if fit.average is None else fit.average.state_dict()
        expected = {**like(training.model.state_dict(), "model."), **like(average, "average.")}
        for part in STATE:
            state = {name: torch.zeros(()) if part == "step" else own for name, own in fit.module.named_parameters()}
            expected |= like(state, f"{part}.", optional=True)
        if facts["done"] % fit.steps_per_epoch:
            expected["random"] = _RANDOM
        return expected

    def wrong(facts: dict[str, Any]) -> str | None:
        whole, recorded = facts["done"] // training.fit.steps_per_epoch, len(facts["history"])
        return None if whole == recorded else f"{whole} epochs are done and {recorded} are recorded"

    return Schema(KIND, Ruled(_FACTS, wrong), arrays)


def _identity(training: BaseTraining) -> dict[str, Any]:
    """Return what must be equal for a checkpoint to be continued, as read back from JSON.

    Of the recipe, only values that are not defaults: a later version with one more field continues the same training.
    """
    defaults = asdict(Recipe(epochs=0))
    identity = {
        "card": asdict(replace(training.model.card, training={})),
        "recipe": {name: value for name, value in asdict(training.recipe).items() if value != defaults[name]},
        "seed": training.seed,
        "data": training.fingerprint,
        "teachers": [teacher.fingerprint() for teacher in training.teachers],
    }
    return json.loads(json.dumps(identity))  # type: ignore[no-any-return]
