"""Parts of network methods: every hook is called, in order, and the contract's check notices one that would not be."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import pytest

from dsal.base.progress import Progress
from dsal.methods import METHODS, Phase
from dsal.methods.checks import checks
from dsal.methods.network.icarl import ICaRL
from dsal.methods.network.kit.exemplars import Memory
from dsal.methods.network.kit.network_method import NetworkMethod
from dsal.methods.network.kit.part import HOOKS, FreezeOldRows, Part, skipped_hooks
from dsal.methods.network.lucir import LUCIR, Imprint
from dsal.methods.network.rmm import PODNetAANetsRMM

NETWORKS = [METHODS.get(name) for name in METHODS.names() if METHODS.get(name).inputs == "images"]


class Spy(Part):
    """Writes down which hooks are called."""

    calls: ClassVar[list[str]] = []

    def __getattribute__(self, name: str) -> Any:
        if name in HOOKS:
            Spy.calls.append(name)
        return super().__getattribute__(name)


@dataclass(kw_only=True, eq=False)
class Spied(LUCIR):
    """LUCIR with one more part."""

    parts = (*LUCIR.parts, Spy)


def test_a_part_has_its_turn_in_every_phase(trained: Any, three: list[Phase], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(METHODS._entries, "spied", Spied)
    Spy.calls.clear()
    method = trained("spied", three[:2], epochs=1, base_epochs=1)
    phase = ["check", "shape", "begin", "freeze", "end_epoch", "begin_stage", "end", "kept"]
    assert Spy.calls == 2 * phase
    Spied.from_state(method.state())
    assert Spy.calls[16:] == ["state", "shape", "restore"]


@pytest.mark.parametrize("cls", NETWORKS, ids=lambda cls: cls.name)
def test_no_method_skips_a_hook(cls: type[NetworkMethod]) -> None:
    assert list(skipped_hooks(cls)) == []


def test_aanets_and_rmm_add_to_a_method_what_they_do() -> None:
    assert PODNetAANetsRMM.parts[:-1] == METHODS.get("podnet").parts  # type: ignore[attr-defined]
    assert PODNetAANetsRMM.milestones == METHODS.get("podnet").milestones == ()  # type: ignore[attr-defined]


@dataclass(kw_only=True, eq=False)
class Runs(ICaRL):
    """Runs a phase itself, and forgets the parts."""

    def _steps(self, phase: Phase) -> Iterator[Progress]:
        yield from ()


@dataclass(kw_only=True, eq=False)
class Drops(LUCIR):
    """Loses the part that imprints."""

    parts = (FreezeOldRows,)


@dataclass(kw_only=True, eq=False)
class Forgets(LUCIR):
    """Keeps nothing, where LUCIR keeps exemplars."""

    policy = Memory


class Twice(Imprint):
    def begin(self, phase: Phase) -> None:
        """Without super(): nothing is imprinted."""


@dataclass(kw_only=True, eq=False)
class Overrides(LUCIR):
    """Has a part that overrides a hook of another."""

    parts = (Twice, FreezeOldRows)


@pytest.mark.parametrize(
    ("broken", "reason"),
    [
        (Runs, "Runs overrides _steps"),
        (Drops, "parts leaves out Imprint of LUCIR"),
        (Forgets, "policy Memory does not do what Herded of LUCIR does"),
        (Overrides, "Twice overrides the hook begin of Imprint"),
    ],
)
def test_the_check_notices(broken: type[NetworkMethod], reason: str) -> None:
    check = {each.name: each for each in checks(broken)}["no_hook_of_a_part_is_skipped"]
    with pytest.raises(AssertionError, match=reason):
        check()
