"""What must hold for the parts of a method, so that no hook is skipped silently."""

from __future__ import annotations

from collections.abc import Iterator

from dsal.methods.network.kit.network_method import NetworkMethod
from dsal.methods.network.kit.part import HOOKS, Part

RUNNER = ("_steps", "_begin_phase", "_fit", "_end_phase", "_resume", "state", "from_state", "each_part", "part")
"""What calls the hooks: a method must not override it."""


def skipped_hooks(cls: type[NetworkMethod]) -> Iterator[str]:
    """Yield in words how a hook of a part would be skipped; nothing if every hook is called."""
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
