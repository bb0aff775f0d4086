"""The writing thread: changes of models one at a time, each with an answer that is true.

Changes of one model are made in the order in which they came. A model that another program has locked delays only its
own changes. A change that was interrupted has not been made, or its outcome is unknown; it is never denied falsely.
"""

from __future__ import annotations

import asyncio
import os
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import asynccontextmanager
from contextvars import copy_context
from typing import Any, TypeVar

from dsal.errors import ModelBusyError
from dsal.serve.http_errors import Refusal, Stopped, Unknown

T = TypeVar("T")
_NICENESS = 2  # added for the writing thread: next to three busy threads on two cores it gets a third of a core
_LOCK_SECONDS = 30.0
_PAUSE = 0.05  # seconds between two attempts to lock a model


class Writer:
    """Runs functions in one thread; call its methods from the event loop.

    Args:
        most: most changes that may wait.
    """

    def __init__(self, most: int) -> None:
        self.most, self.waiting = most, 0
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="dsal-writer", initializer=_lower_priority)
        self._turns: dict[str, tuple[asyncio.Lock, int]] = {}  # of each model: its queue, and how many are in it
        self._since: float | None = None

    async def run(self, function: Callable[..., T], name: str, *arguments: Any) -> T:
        """Return ``function(name, *arguments)``, which changes the model ``name``, all or nothing.

        Raises:
            Stopped: the server stops, and nothing was changed.
            Unknown: the server stops while the change is being made.
            Refusal: too many changes wait, or another program keeps the model locked.
        """
        if self.waiting >= self.most:
            raise Refusal(429, f"{self.waiting} changes are already waiting: try again later")
        self.waiting += 1
        until = time.monotonic() + _LOCK_SECONDS
        try:
            async with self._turn(name):
                while True:
                    try:
                        return await self._once(function, name, *arguments)
                    except ModelBusyError as error:
                        if time.monotonic() > until:
                            raise Refusal(
                                503, f"another program is writing the model {name!r}: try again", 5
                            ) from error
                    await asyncio.sleep(_PAUSE)
        except asyncio.CancelledError as error:
            raise Stopped from error
        finally:
            self.waiting -= 1

    def busy_seconds(self) -> float:
        """Return for how long the present change has been running; 0 if there is none."""
        since = self._since
        return 0.0 if since is None else time.monotonic() - since

    def close(self) -> None:
        """Finish the change that is being made; none of the others has begun."""
        self._pool.shutdown(wait=True, cancel_futures=True)

    async def _once(self, function: Callable[..., T], *arguments: Any) -> T:
        future: Future[T] = self._pool.submit(copy_context().run, self._timed, function, *arguments)
        answer = asyncio.wrap_future(future)
        answer.add_done_callback(lambda done: done.cancelled() or done.exception())  # perhaps nobody is left to ask
        try:
            return await asyncio.shield(answer)  # there are no partial changes, even if the client has disconnected
        except asyncio.CancelledError:
            if future.cancel():
                raise  # it has not begun
            raise Unknown from None

    def _timed(self, function: Callable[..., T], *arguments: Any) -> T:
        self._since = time.monotonic()
        try:
            return function(*arguments)
        finally:
            self._since = None

    @asynccontextmanager
    async def _turn(self, name: str) -> AsyncIterator[None]:
        """Wait until earlier changes of this model are made."""
        lock, users = self._turns.get(name, (asyncio.Lock(), 0))
        self._turns[name] = lock, users + 1
        try:
            async with lock:
                yield
        finally:
            users = self._turns[name][1] - 1
            if users:
                self._turns[name] = lock, users
            else:
                del self._turns[name]


def _lower_priority() -> None:
    """Lower the priority of this thread, if the system supports thread priorities."""
    if sys.platform == "linux":
        thread = threading.get_native_id()
        os.setpriority(os.PRIO_PROCESS, thread, min(os.getpriority(os.PRIO_PROCESS, thread) + _NICENESS, 19))
