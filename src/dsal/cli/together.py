"""Commands that many processes carry out together, when ``torchrun`` starts them."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import wraps
from typing import ParamSpec

from dsal.errors import InputError

P = ParamSpec("P")


def together(command: Callable[P, None]) -> Callable[P, None]:
    """The command, with all processes joined while it runs; in a single process nothing is different."""

    @wraps(command)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        if int(os.environ.get("WORLD_SIZE", "1")) == 1:
            command(*args, **kwargs)  # which may fail, or even end well, without the seconds that PyTorch takes
            return
        from dsal.distributed import joined

        with joined():
            command(*args, **kwargs)

    return run


def alone(command: Callable[P, None]) -> Callable[P, None]:
    """The command, refused where it would run in many processes, each of them unaware of the others."""

    @wraps(command)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        if int(os.environ.get("WORLD_SIZE", "1")) > 1:
            raise InputError(f"dsal {command.__name__} runs in one process: start it without torchrun")
        command(*args, **kwargs)

    return run
