"""Run the server: sockets, idle connections, clean shutdown."""

from __future__ import annotations

import asyncio
import ctypes
import gc
import json
import os
import socket
import ssl
import sys
import threading
from collections.abc import Callable, Sequence
from types import FrameType
from typing import Any

import torch
import uvicorn
from starlette.types import ASGIApp
from threadpoolctl import threadpool_limits
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from dsal.errors import InputError
from dsal.serve.engine.service import Service
from dsal.serve.http.app import Routes, create_app
from dsal.serve.http.guard import SECURITY
from dsal.serve.settings import MEGABYTE, Settings

_LAST = 0.3  # part of the grace time after which requests are cancelled, to write what has been begun
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # parameters of mallopt, as malloc.h numbers them
_SWITCH = 0.0005  # seconds after which a thread gives up Python's lock if others want it; by default 0.005
_MAX_OVERHEAD = 2**16  # bytes of a request besides its body


def listen(settings: Settings) -> socket.socket:
    """Return a listening socket at the server's address.

    Raises:
        InputError: the address is in use, or does not belong to this machine, or the certificate cannot be used.
    """
    if settings.ssl_certfile is not None:
        try:
            context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
            context.load_cert_chain(settings.ssl_certfile, settings.ssl_keyfile)
        except (OSError, ValueError) as error:
            raise InputError(f"cannot use the certificate {settings.ssl_certfile} with its key: {error}") from error
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((settings.host, settings.port))
        listener.listen(1024)  # clients that connect while the server loads wait instead of being refused
    except OSError as error:
        listener.close()
        raise InputError(
            f"cannot listen on {settings.host}, port {settings.port}: {error.strerror}; try another --port"
        ) from error
    return listener


def run(
    settings: Settings,
    listener: socket.socket,
    more: Sequence[Routes] = (),
    around: Callable[[ASGIApp], ASGIApp] | None = None,
) -> None:
    """Serve until Ctrl-C or SIGTERM, with the routes of adapters, and with one ``around`` the application."""
    _allow_connections()
    _return_freed_memory()
    sys.setswitchinterval(_SWITCH)  # the event loop asks for the lock again after every socket call
    torch.set_num_threads(1)  # one core per batch; a lesson leaves half of the cores to predictions
    threadpool_limits(max((os.cpu_count() or 1) // 2, 1), user_api="blas")
    app = create_app(settings, more)
    config = uvicorn.Config(
        app if around is None else around(app),
        http=bounded_protocol(settings.idle, settings.stalled),
        ssl_certfile=settings.ssl_certfile,
        ssl_keyfile=settings.ssl_keyfile,
        ws="none",
        lifespan="on",
        log_level="warning",
        access_log=False,
        server_header=False,
        proxy_headers=False,  # nothing depends on the client's address
        backlog=1024,
        timeout_keep_alive=30,
        timeout_graceful_shutdown=max(int(settings.grace * (1 - _LAST)), 1),
    )
    gc.collect()
    gc.freeze()  # code and libraries stay in memory: the collector can ignore them
    app.service.collects = True
    _Stoppable(config, app.service).run(sockets=[listener])


class _Stoppable(uvicorn.Server):
    """A server that ends within its grace time, whatever runs; a change is on disk as a whole or not at all."""

    def __init__(self, config: uvicorn.Config, service: Service) -> None:
        super().__init__(config)
        self._service = service

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Stop on a signal."""
        if not self._service.draining:
            self._service.draining = True
            last = threading.Timer(self._service.settings.grace, os._exit, (128 + sig,))
            last.daemon = True
            last.start()
        super().handle_exit(sig, frame)


def _allow_connections() -> None:
    """Raise the limit of open files, which may be as low as 1024, as far as the system allows, up to 65536."""
    try:
        import resource
    except ImportError:  # Windows has no such limit
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 2**16 if hard == resource.RLIM_INFINITY else min(hard, 2**16)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted), hard))


def _return_freed_memory() -> None:
    """Make glibc return models and other large arrays to the system as soon as they are freed.

    By default it raises the size threshold for this to 32 MB, and the heaps of its threads fragment: a server that
    learned and read models grew by half within a quarter of an hour.
    """
    if sys.platform == "linux" and hasattr(libc := ctypes.CDLL(None), "mallopt"):
        libc.mallopt(_MMAP_THRESHOLD, 4 * MEGABYTE)
        libc.mallopt(_TRIM_THRESHOLD, 16 * MEGABYTE)


def bounded_protocol(idle: float, stalled: float) -> type[asyncio.Protocol]:
    """Return an HTTP protocol that closes connections which cost more than they are worth.

    These are idle for ``idle`` seconds, have headers that never end, or belong to a client that for ``stalled`` seconds
    reads nothing of its answer.
    """

    class Bounded(HttpToolsProtocol):
        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            self._overhead = self._body = 0  # bytes of this request: headers, chunk sizes and trailers; body
            self._seen: object = None
            self._watch = self.loop.call_later(idle, self._check_idle)
            self._stall: asyncio.TimerHandle | None = None

        def connection_lost(self, exc: Exception | None) -> None:
            self._watch.cancel()
            self.resume_writing()
            super().connection_lost(exc)

        def pause_writing(self) -> None:
            if self._stall is None:
                self._stall = self.loop.call_later(stalled, self.transport.abort)
            super().pause_writing()

        def resume_writing(self) -> None:
            if self._stall is not None:
                self._stall.cancel()
                self._stall = None
            super().resume_writing()

        def send_400_response(self, msg: str) -> None:
            text = json.dumps({"error": f"this is not HTTP: {msg}"}).encode()
            headers = [*SECURITY, (b"content-type", b"application/json"), (b"content-length", b"%d" % len(text))]
            lines = [b"HTTP/1.1 400 Bad Request", *(b": ".join(header) for header in headers), b"connection: close"]
            self.transport.write(b"\r\n".join([*lines, b"", text]))
            self.transport.close()

        def data_received(self, data: bytes) -> None:
            self._overhead += len(data)
            super().data_received(data)
            if self._overhead > _MAX_OVERHEAD + self._body // 16:
                self.transport.close()

        def on_body(self, body: bytes) -> None:
            self._overhead -= len(body)
            self._body += len(body)
            if not self.cycle.body:  # an empty bytearray, into and out of which uvicorn would copy the body
                self.cycle.body = b""  # type: ignore[assignment]
            super().on_body(body)

        def on_message_complete(self) -> None:
            self._overhead = self._body = 0
            super().on_message_complete()

        def _check_idle(self) -> None:
            busy = self.cycle is not None and not self.cycle.response_complete
            if not busy and self._seen is self.cycle:
                self.transport.abort()  # unlike close(), this does not wait until an answer has been read
                return
            self._seen = object() if busy else self.cycle
            self._watch = self.loop.call_later(idle, self._check_idle)

    return Bounded
