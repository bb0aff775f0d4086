"""Processes of a command: many that ``torchrun`` starts, a child that ends with its parent, one with little memory.

Only the command line knows a team that is not an argument: it joins the processes here, and passes the team down.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import wraps
from threading import Thread
from typing import TYPE_CHECKING, ParamSpec

from dsal.errors import InputError, MemoryNeededError

if TYPE_CHECKING:
    from dsal.distributed import Team

P = ParamSpec("P")
_joined: list[Team] = []  # the team of the command that runs now, if it has several processes


def current_team() -> Team:
    """Return the processes that run this command."""
    from dsal.distributed import ALONE

    return _joined[-1] if _joined else ALONE


def leads() -> bool:
    """Return whether this process is the one that prints and writes."""
    return not _joined or _joined[-1].leads


def in_processes(command: Callable[P, None], *, many: bool) -> Callable[P, None]:
    """Wrap a command so that all processes of ``torchrun`` are joined while it runs, or are refused.

    A single process runs it unchanged: it may finish or fail without loading PyTorch, which takes seconds.

    Args:
        command: its own arguments stay.
        many: whether it can run in many processes; others would not know of each other.
    """

    @wraps(command)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        check_address_space(command.__name__)
        if int(os.environ.get("WORLD_SIZE", "1")) == 1:
            command(*args, **kwargs)
            return
        if not many:
            raise InputError(f"dsal {command.__name__} runs in one process: start it without torchrun")
        from dsal.distributed import join_processes

        with join_processes() as team:
            _joined.append(team)
            try:
                command(*args, **kwargs)
            finally:
                _joined.pop()

    return run


LIBRARIES = 2 * 10**9  # bytes of address space that PyTorch, SciPy and scikit-learn need, with some work
_LIGHT = ("info", "predict", "rename", "drop", "undo", "redo")  # commands that load less
_SIGNS = (  # out-of-memory errors of loaders, torch, ONNX Runtime and threads
    "failed to map segment",
    "can't allocate memory",
    "cannot allocate memory",
    "can't start new thread",
    "bad_alloc",
    "not enough memory",
)


def check_address_space(command: str) -> None:
    """Raise :class:`MemoryNeededError` if a limit on addresses (``ulimit -v``) leaves no room for the libraries."""
    try:
        import resource
    except ImportError:  # not Unix
        return
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    if limit != resource.RLIM_INFINITY and limit < LIBRARIES and command not in _LIGHT:
        raise MemoryNeededError(
            f"dsal {command} needs {LIBRARIES / 1e9:.1f} GB of address space for its libraries alone; "
            f"this process may use {limit / 1e9:.2f} GB. Raise the limit: ulimit -v {LIBRARIES // 1000} or more"
        )


def out_of_memory(error: BaseException) -> bool:
    """Return whether an error means that memory ran out, whichever library raised it."""
    if isinstance(error, MemoryError):
        return True
    possible = isinstance(error, (ImportError, RuntimeError, OSError, SystemError))
    return possible and any(sign in str(error).lower() for sign in _SIGNS)


_FLAG = "DSAL_ENDS_WITH_STDIN"


def run_child(arguments: Sequence[str]) -> int:
    """Run ``dsal ARGUMENTS`` in its own process, discard its standard output, and return its exit code."""
    process = subprocess.Popen(
        [sys.executable, "-m", "dsal", *arguments],
        stdin=subprocess.PIPE,  # closed by the system when this process ends, however it ends
        stdout=subprocess.DEVNULL,
        env={**os.environ, _FLAG: "1"},
    )
    try:
        return process.wait()
    except KeyboardInterrupt:
        with suppress(subprocess.TimeoutExpired):
            process.wait(timeout=10)  # Ctrl-C reached it as well: let it save what it has
        raise
    finally:
        process.kill()


def end_with_parent() -> None:
    """End this process when its parent ends, if :func:`run_child` started it; else do nothing."""
    if os.environ.pop(_FLAG, None):
        Thread(target=_watch, daemon=True).start()


def _watch() -> None:
    os.read(0, 1)  # not sys.stdin, whose lock would be held while the interpreter shuts down
    os._exit(1)
