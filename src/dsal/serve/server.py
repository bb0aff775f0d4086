"""Listening: sockets, idle connections, and a clean end."""

from __future__ import annotations

import asyncio
import os
import socket
from typing import Any

import torch
import uvicorn
from threadpoolctl import threadpool_limits
from uvicorn.protocols.http.h11_impl import H11Protocol

from dsal.errors import InputError
from dsal.serve.app import create_app
from dsal.serve.settings import Settings

_GRACE = 10  # seconds for requests under way when the server is stopped


def listen(settings: Settings) -> socket.socket:
    """A socket at the server's address.

    Raises:
        InputError: the address is taken, or not this machine's.
    """
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((settings.host, settings.port))
        listener.listen(1024)  # who comes before all is loaded waits, and is not refused
    except OSError as error:
        listener.close()
        raise InputError(
            f"cannot listen at {settings.host}, port {settings.port}: {error.strerror}; take another --port"
        ) from error
    return listener


def run(settings: Settings, listener: socket.socket) -> None:
    """Serve until Ctrl-C or SIGTERM."""
    _allow_connections()
    torch.set_num_threads(1)  # every batch has a core to itself, and a lesson leaves half of them to predictions
    threadpool_limits(max((os.cpu_count() or 1) // 2, 1), user_api="blas")
    config = uvicorn.Config(
        create_app(settings),
        http=patient_protocol(settings.idle),
        ws="none",
        lifespan="on",
        log_level="warning",
        access_log=False,
        server_header=False,
        backlog=1024,
        timeout_keep_alive=30,
        timeout_graceful_shutdown=_GRACE,
        h11_max_incomplete_event_size=64 * 1024,
    )
    uvicorn.Server(config).run(sockets=[listener])


def _allow_connections() -> None:
    """Raise the limit of open files, which may be as low as 1024, as far as the system lets us."""
    try:
        import resource
    except ImportError:  # Windows has no such limit
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 2**16 if hard == resource.RLIM_INFINITY else min(hard, 2**16)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted), hard))


def patient_protocol(seconds: float) -> type[asyncio.Protocol]:
    """HTTP connections that are closed when for ``seconds`` no request of theirs has begun or gone on."""

    class Patient(H11Protocol):
        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            self._seen: object = None
            self._watch = self.loop.call_later(seconds, self._look)

        def connection_lost(self, exc: Exception | None) -> None:
            self._watch.cancel()
            super().connection_lost(exc)

        def _look(self) -> None:
            busy = self.cycle is not None and not self.cycle.response_complete
            if not busy and self._seen is self.cycle:
                self.transport.close()
                return
            self._seen = object() if busy else self.cycle
            self._watch = self.loop.call_later(seconds, self._look)

    return Patient
