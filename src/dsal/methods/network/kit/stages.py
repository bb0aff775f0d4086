"""The training stages of a phase: most methods have one, some fine-tune or compress afterwards."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import nn

from dsal.data.samples import Samples
from dsal.training.fit import Loss


@dataclass(frozen=True, eq=False)
class Stage:
    """One training stage of a phase.

    Attributes:
        epochs: passes over the samples.
        samples: images to train on.
        loss: loss to minimise; the method's ``loss`` by default.
        module: module to train; the method's network by default.
        trained: part of ``module`` whose weights are updated; by default all of it except what the method's
            ``_freeze`` freezes.
        recipe: fields of the recipe that differ from the method's options, such as ``lr``.
    """

    epochs: int
    samples: Samples
    loss: Loss | None = None
    module: nn.Module | None = None
    trained: nn.Module | None = None
    recipe: Mapping[str, Any] = field(default_factory=dict)
