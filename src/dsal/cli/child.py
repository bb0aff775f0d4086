"""Run a command in a child process that ends with its parent, so that it does not go on writing to the same folder."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from threading import Thread

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
