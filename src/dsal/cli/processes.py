"""Commands that several processes run together when ``torchrun`` starts them.

Only the command line knows a team that is not an argument: it joins the processes here, and passes the team down.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, ParamSpec

from dsal.cli.limits import check_address_space
from dsal.errors import InputError

if TYPE_CHECKING:
    from dsal.distributed import Team

P = ParamSpec("P")
_joined: list[Team] = []  # the team of the command that runs now, if it has several processes


def current_team() -> Team:
    """Return the processes that run this command."""
    from dsal.distributed import ALONE

    return _joined[-1] if _joined else ALONE


def multi_process(command: Callable[P, None]) -> Callable[P, None]:
    """Wrap a command so that all processes are joined while it runs; a single process runs it unchanged."""

    @wraps(command)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        check_address_space(command.__name__)
        if int(os.environ.get("WORLD_SIZE", "1")) == 1:
            command(*args, **kwargs)  # may finish or fail without loading PyTorch, which takes seconds
            return
        from dsal.distributed import joined

        with joined() as team:
            _joined.append(team)
            try:
                command(*args, **kwargs)
            finally:
                _joined.pop()

    return run


def single_process(command: Callable[P, None]) -> Callable[P, None]:
    """Wrap a command so that it is refused in several processes, which would not know of each other."""

    @wraps(command)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        check_address_space(command.__name__)
        if int(os.environ.get("WORLD_SIZE", "1")) > 1:
            raise InputError(f"dsal {command.__name__} runs in one process: start it without torchrun")
        command(*args, **kwargs)

    return run
