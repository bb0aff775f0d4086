"""A lightweight load generator: prepared requests, many connections, one thread, minimal parsing of answers."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import cycle, islice
from typing import Any
from urllib.parse import urlsplit

_LENGTH = re.compile(rb"content-length: *(\d+)", re.IGNORECASE)


@dataclass(frozen=True)
class Load:
    """The result of a load.

    Attributes:
        seconds: from the first request to the last answer.
        cpu_seconds: CPU time of the generator itself.
        latencies: latency of every request, in seconds.
    """

    seconds: float
    cpu_seconds: float
    latencies: list[float]


def request(url: str, body: bytes, **headers: str) -> bytes:
    """Return the bytes of a POST; underscores in header names become hyphens."""
    parts = urlsplit(url)
    lines = [f"POST {parts.path} HTTP/1.1", f"Host: {parts.netloc}", f"Content-Length: {len(body)}"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode() + body


def send(url: str, requests: Sequence[bytes], seconds: float, concurrency: int) -> Load:
    """Send requests over several connections, each as soon as the previous one is answered."""
    return asyncio.run(_send(url, requests, seconds, concurrency))


async def _send(url: str, requests: Sequence[bytes], seconds: float, concurrency: int) -> Load:
    parts, loop, latencies = urlsplit(url), asyncio.get_running_loop(), list[float]()
    start, used = time.perf_counter(), time.process_time()

    def connection(number: int) -> _Connection:
        return _Connection(islice(cycle(requests), number, None), start + seconds, latencies)

    made = [
        await loop.create_connection(partial(connection, number), parts.hostname, parts.port)
        for number in range(concurrency)
    ]
    await asyncio.gather(*(protocol.ended for _, protocol in made))
    return Load(time.perf_counter() - start, time.process_time() - used, latencies)


class _Connection(asyncio.Protocol):
    """One client: sends a request, waits for its answer, sends the next."""

    def __init__(self, requests: Iterator[bytes], until: float, latencies: list[float]) -> None:
        self.requests, self.until, self.latencies = requests, until, latencies
        self.ended = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        self.send()

    def send(self) -> None:
        """Send the next request."""
        self.answer, self.sent = b"", time.perf_counter()
        self.transport.write(next(self.requests))

    def data_received(self, data: bytes) -> None:
        self.answer += data
        head, blank, body = self.answer.partition(b"\r\n\r\n")
        length = _LENGTH.search(head)
        if not blank or length is None or len(body) < int(length[1]):
            return
        if not head.startswith(b"HTTP/1.1 200 "):
            self.fail(ConnectionError(self.answer.decode(errors="replace")))
            return
        now = time.perf_counter()
        self.latencies.append(now - self.sent)
        if now < self.until:
            self.send()
        else:
            self.transport.close()
            self.ended.set_result(None)

    def connection_lost(self, error: Exception | None) -> None:
        self.fail(error or ConnectionError("the server closed the connection"))

    def fail(self, error: Exception) -> None:
        """Fail with this error, unless the connection has ended normally."""
        self.transport.close()
        if not self.ended.done():
            self.ended.set_exception(error)
