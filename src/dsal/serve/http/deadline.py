"""A time limit for a block of code, after which the request is refused."""

from __future__ import annotations

import asyncio

from dsal.serve.http_errors import Refusal


class deadline:  # like asyncio.timeout, which Python 3.10 does not have
    """Cancel a block that takes longer than ``seconds``, and raise ``refusal``."""

    def __init__(self, seconds: float, refusal: Refusal) -> None:
        self.seconds, self.refusal = seconds, refusal
        self.expired = False

    async def __aenter__(self) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._timer = asyncio.get_running_loop().call_later(self.seconds, self._expire, task)

    def _expire(self, task: asyncio.Task[object]) -> None:
        self.expired = True
        task.cancel()

    async def __aexit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        self._timer.cancel()
        if self.expired and kind is asyncio.CancelledError:
            raise self.refusal
