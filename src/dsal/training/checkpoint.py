"""Checkpoints of base training: the whole state at the end of an epoch, in one file that is whole or not there.

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
from dsal.schema import ANY_TABLE, Array, Each, Maybe, Number, Record, Schema, like
from dsal.store import load_tensors, save_tensors
from dsal.training.loop import BaseTraining, EpochResult

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


def save_checkpoint(path: Path, training: BaseTraining) -> None:
    """Write all that the rest of a training depends on."""
    tensors = {f"model.{name}": value for name, value in training.model.state_dict().items()}
    meta = {
        "kind": KIND,
        "identity": _identity(training),
        "history": [asdict(result) for result in training.history],
        "scaler": training.fit.scaler.state_dict(),
    }
    save_tensors(path, {**tensors, **training.fit.arrays()}, meta)


def load_checkpoint(path: Path, training: BaseTraining) -> None:
    """Put a training where it was when the checkpoint was written.

    Raises:
        InputError: the checkpoint is of another training; says what differs.
        FileFormatError: the file is truncated or corrupt or not a checkpoint.
    """
    tensors, meta = training.team.told(partial(load_tensors, path, _schema(training, path)))
    model, rest = {}, {}
    for name, value in tensors.items():
        part, _, own = name.partition(".")
        if part == "model":
            model[own] = torch.from_numpy(value)
        else:
            rest[name] = value
    try:
        training.model.load_state_dict(model)
        training.history = [EpochResult(**result) for result in meta["history"]]
        done = len(training.history) * training.fit.steps_per_epoch
        training.fit.restore(rest, {"done": done, "scaler": meta["scaler"]})
    except (KeyError, RuntimeError, TypeError) as error:
        raise FileFormatError(f"{path} is not a usable checkpoint: {error}") from error


def _schema(training: BaseTraining, path: Path) -> Schema:
    """What a checkpoint of this training must hold."""

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
        return {
            **like(training.model.state_dict(), "model."),
            **like(average, "average."),
            **like(dict(fit.module.named_parameters()), "momentum.", optional=True),
        }

    return Schema(KIND, Record({"identity": ANY_TABLE, "history": Each(_EPOCH), "scaler": ANY_TABLE}), arrays)


def _identity(training: BaseTraining) -> dict[str, Any]:
    """What must be equal for a checkpoint to be continued, as JSON gives it back."""
    identity = {
        "card": asdict(replace(training.model.card, training={})),
        "recipe": asdict(training.recipe),
        "seed": training.seed,
        "data": training.fingerprint,
    }
    return json.loads(json.dumps(identity))  # type: ignore[no-any-return]
