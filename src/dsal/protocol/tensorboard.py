"""The curves of a run as TensorBoard events (the extra ``tensorboard``)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dsal.errors import InputError
from dsal.protocol.results import CURVES


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
