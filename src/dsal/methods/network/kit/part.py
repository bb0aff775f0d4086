"""Parts of a network method: what happens around the training of a phase, one idea each.

A method declares its parts (``parts``), and the runner calls the hooks of every part, in order. A method itself has no
hooks, so none can be skipped by a subclass that forgets ``super()``: to add behaviour is to add a part.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar, Generic, TypeVar

from torch import Tensor

from dsal.files.tensors import flat, under
from dsal.methods.contract import Phase
from dsal.methods.network.kit.growing_network import GrowingNetwork

if TYPE_CHECKING:
    from dsal.methods.network.kit.network_method import NetworkMethod

HOOKS = ("check", "shape", "begin", "freeze", "begin_stage", "end_epoch", "end", "kept", "state", "restore")
"""Names of the hooks, in the order in which a phase calls them; the last two save and restore."""


M = TypeVar("M", bound="NetworkMethod")


class Part(Generic[M]):
    """Something that a method does around its training; every hook does nothing unless a part defines it.

    Args:
        method: the method that the part belongs to.
    """

    tensors: ClassVar[tuple[str, ...]] = ()
    """Names of attributes to save, each a tensor or tensors by name; no other part of a method has the same."""

    def __init__(self, method: M) -> None:
        self.method = method

    def check(self, phase: Phase) -> None:
        """Refuse a phase that cannot be learned; nothing has changed yet."""

    def shape(self, network: GrowingNetwork) -> None:
        """Modify a network after its head has grown; also called when a network is restored from a state."""

    def begin(self, phase: Phase) -> None:
        """Prepare the training of a phase; the network has already grown."""

    def freeze(self) -> None:
        """Freeze what the first stage of a phase does not train; called when that stage begins or resumes."""

    def begin_stage(self, number: int, phase: Phase) -> None:
        """Prepare a later stage (1, 2 ...) of a phase; not called again when the stage resumes."""

    def end_epoch(self, phase: Phase, number: int) -> None:
        """Run after each epoch of a stage; the state of the method must be valid afterwards."""

    def end(self, phase: Phase) -> None:
        """Run after the training of a phase, before exemplars are chosen."""

    def kept(self, phase: Phase) -> None:
        """Run after exemplars of the new classes were chosen."""

    def state(self) -> dict[str, Tensor]:
        """Return what the part keeps between steps, by names that no other part uses: its ``tensors``."""
        found: dict[str, Tensor] = {}
        for name in self.tensors:
            value = getattr(self, name)
            found |= flat({name: value}) if isinstance(value, dict) else {name: value}
        return found

    def restore(self, tensors: dict[str, Tensor]) -> None:
        """Restore what :meth:`state` returned, from the tensors of all parts."""
        for name in self.tensors:
            group = isinstance(getattr(self, name), dict)
            setattr(self, name, under(tensors, name) if group else tensors[name])


class FreezeOldRows(Part["NetworkMethod"]):
    """The rows of the head for old classes do not learn."""

    def freeze(self) -> None:
        self.method.network.head.freeze_old()


RUNNER = ("_steps", "_begin_phase", "_fit", "_end_phase", "_resume", "state", "from_state", "each_part", "part")
"""What calls the hooks: a method must not override it."""


def skipped_hooks(cls: type[NetworkMethod]) -> Iterator[str]:
    """Yield in words how a hook of a part would be skipped; nothing if every hook is called."""
    from dsal.methods.network.kit.network_method import NetworkMethod  # which imports this module

    for name in RUNNER:
        owner = next(base for base in cls.__mro__ if name in vars(base))
        if owner is not NetworkMethod:
            yield f"{owner.__name__} overrides {name}, which calls the hooks: add a part instead"
    for base in (base for base in cls.__mro__ if issubclass(base, NetworkMethod)):
        for lost in (part for part in base.parts if not any(issubclass(own, part) for own in cls.parts)):
            yield f"parts leaves out {lost.__name__} of {base.__name__}: write parts = (*{base.__name__}.parts, ...)"
        if not issubclass(cls.policy, base.policy):
            yield f"policy {cls.policy.__name__} does not do what {base.policy.__name__} of {base.__name__} does"
    for part in (*cls.parts, cls.policy):
        for hook in HOOKS:
            owners = [base.__name__ for base in part.__mro__ if hook in vars(base) and base is not Part]
            if len(owners) > 1:
                yield f"{owners[0]} overrides the hook {hook} of {owners[1]}: make it a part of its own"
