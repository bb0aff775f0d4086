"""The base class of methods that keep images of earlier phases."""

from __future__ import annotations

from dataclasses import dataclass

from dsal.methods.network.kit.exemplars import Exemplars
from dsal.methods.network.kit.network_method import NetworkMethod


@dataclass(kw_only=True, eq=False)
class ReplayMethod(NetworkMethod):
    """A method that trains on the images of a phase and on exemplars of all earlier classes.

    Args:
        exemplars_per_class: images kept of each class.
        exemplar_bytes: bytes of all exemplars together; None for no limit.
    """

    exemplars_per_class: int = 20
    exemplar_bytes: int | None = None

    def _memory(self) -> Exemplars:
        return Exemplars(self.exemplars_per_class, self.exemplar_bytes)
