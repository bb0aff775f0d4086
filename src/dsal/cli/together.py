"""Commands that several processes run together when ``torchrun`` starts them."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import wraps
from typing import ParamSpec

from dsal.cli.limits import check_address_space
from dsal.errors import InputError

P = ParamSpec("P")


def together(command: Callable[P, None]) -> Callable[P, None]:
    """Wrap a command so that all processes are joined while it runs; a single process runs it unchanged."""

    @wraps(command)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        check_address_space(command.__name__)
        if int(os.environ.get("WORLD_SIZE", "1")) == 1:
            command(*args, **kwargs)  # may finish or fail without loading PyTorch, which takes seconds
            return
        from dsal.distributed import joined

        with joined():
            command(*args, **kwargs)

    return run


def alone(command: Callable[P, None]) -> Callable[P, None]:
    """Wrap a command so that it is refused in several processes, which would not know of each other."""

    @wraps(command)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        check_address_space(command.__name__)
        if int(os.environ.get("WORLD_SIZE", "1")) > 1:
            raise InputError(f"dsal {command.__name__} runs in one process: start it without torchrun")
        command(*args, **kwargs)

    return run
