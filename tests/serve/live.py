"""A server in a process of its own, as users start it."""

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from types import TracebackType
from typing import Any


class Server:
    """``dsal serve`` on a free port; ``url`` is what it prints."""

    def __init__(self, models: Path, weights: Path, *options: str) -> None:
        command = [sys.executable, "-m", "dsal", "serve", "--models", str(models), "--backbone", str(weights)]
        self.process = subprocess.Popen(
            [*command, "--expansion-size", "64", "--port", "0", *options],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "OMP_NUM_THREADS": "1", "DSAL_ONNX": "0"},
        )
        assert self.process.stdout is not None
        self.url = self.process.stdout.readline().strip()
        if not self.url:
            raise AssertionError(self.process.communicate()[1])
        self.said: list[str] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stderr is not None
        self.said += self.process.stderr

    def kill(self) -> None:
        """As kill -9 does."""
        self.process.kill()
        self.process.wait()

    def stop(self) -> int:
        """As Ctrl-C does; returns the exit code."""
        self.process.send_signal(signal.SIGINT)
        code = self.process.wait(30)
        self._reader.join(5)
        return code

    def __enter__(self) -> "Server":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: Any, trace: TracebackType | None) -> None:
        if self.process.poll() is None:
            self.kill()
