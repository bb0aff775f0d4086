"""Access control: checks Host, Origin, token and rate before anything else, and records every answer.

A page of another site must not use a server on this machine: neither under its own name that resolves to this address
(DNS rebinding, detected by the Host) nor by sending requests from a visitor's browser (CSRF, detected by the Origin).
"""

from __future__ import annotations

import base64
import hmac
import re
import time
from collections import OrderedDict
from functools import lru_cache
from ipaddress import ip_address, ip_network
from math import ceil
from typing import Any

from starlette.datastructures import Headers
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from dsal.errors import FileFormatError, InputError, MemoryNeededError, StaleVersionError
from dsal.serve.engine.records import Journal, client
from dsal.serve.engine.service import Service
from dsal.serve.http.bodies import Bodies
from dsal.serve.http_errors import Refusal
from dsal.serve.settings import is_loopback

SECURITY = [
    (
        b"content-security-policy",
        b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob: data:; media-src blob:; "
        b"connect-src 'self'; manifest-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
        b"require-trusted-types-for 'script'; trusted-types 'none'",
    ),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"permissions-policy", b"camera=(self), microphone=(), geolocation=()"),
]
_HOST = re.compile(r"(?P<name>\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(:[0-9]{0,5})?")
_UNCACHED = (b"cache-control", b"no-store")
_PAGE = ("/", "/docs", "/page/")  # code and style of the page: no user data
_OBSERVED = ("/metrics", "/v2/health/live", "/v2/health/ready")
EXPECTED = (Refusal, StaleVersionError, InputError, FileFormatError, MemoryNeededError, OSError)
_BURST = 10  # seconds
_MOST_CLIENTS = 10_000
_MOST_PATH = 200  # characters in the access log


class _Rates:
    """A bucket of ten seconds' worth of requests for every client; the addresses of one IPv6 network share one."""

    def __init__(self, rate: float) -> None:
        self._rate, self._most = rate, max(_BURST * rate, 1.0)
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()  # least recently used first

    def check(self, address: str) -> None:
        """Raise Refusal if a client sends too many requests."""
        if not self._rate:
            return
        name, now = _network(address), time.monotonic()
        left, since = self._buckets.pop(name, (self._most, now))
        left = min(left + (now - since) * self._rate, self._most)
        self._buckets[name] = left - (left >= 1), now
        if len(self._buckets) > _MOST_CLIENTS:
            self._buckets.popitem(last=False)
        if left < 1:
            raise Refusal(
                429, f"more than {self._rate:g} requests per second: try again later", (1 - left) / self._rate
            )


class Guard:
    """ASGI middleware that refuses forbidden requests, limits the body of every other, and records them."""

    def __init__(self, app: ASGIApp, service: Service, bodies: Bodies) -> None:
        self.app, self.service, self.bodies = app, service, bodies
        self.settings, self.metrics = service.settings, service.metrics
        self._is_known_host = lru_cache(maxsize=256)(self._find_host)  # most clients send the same header every time
        self._rates, log = _Rates(self.settings.max_rate), self.settings.access_log
        self._journal = None if log is None else Journal(log)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Refuse the request, or pass it on."""
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self.app(scope, receive, send)
            return
        start, status, sent = time.perf_counter(), 500, 0
        body = self.bodies.incoming(scope, receive)
        client.set(self._client(scope))

        async def watched(message: Message) -> None:
            nonlocal status, sent
            sent += len(message.get("body", b""))
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = [*message["headers"], *SECURITY]
                if all(name != _UNCACHED[0] for name, _ in headers):
                    headers.append(_UNCACHED)
                message["headers"] = headers
            await send(message)

        try:
            try:
                self.check(scope)
                body.check()
            except Refusal as refusal:
                answer = failure(refusal)
                answer.headers["Connection"] = "close"
                await answer(scope, body, watched)
                return
            await self.app(scope, body, watched)
        finally:
            body.release()
            route, seconds = getattr(scope.get("route"), "path", "none"), time.perf_counter() - start
            self.metrics.requests.labels(route, str(status)).inc()
            self.metrics.latency.labels(route).observe(seconds)
            if self._journal is not None:
                request = {"method": scope["method"], "path": scope["path"][:_MOST_PATH], "received": body.size}
                self._journal.write(**request, status=status, sent=sent, seconds=round(seconds, 4))

    def check(self, scope: Scope) -> None:
        """Raise Refusal if the request is not allowed."""
        headers, path = Headers(scope=scope), scope["path"]
        if path not in _OBSERVED:
            self._rates.check(client.get())
        host = headers.get("host", "")
        if len(headers.getlist("host")) != 1 or not self._is_known_host(host):
            raise Refusal(421, f"this server is not known under the name {host[:100]!r}: allow it with --allow-host")
        origin = headers.get("origin")
        if origin is not None and not _is_origin(origin, host):
            raise Refusal(403, "requests from pages of other sites are refused")
        if headers.get("sec-fetch-site", "none") not in ("none", "same-origin") and not _opens_page(headers, path):
            raise Refusal(403, "requests from pages of other sites are refused")
        if not self._is_authorised(path, headers):
            raise Refusal(401, "this server needs a token: send Authorization: Bearer TOKEN")

    def _client(self, scope: Scope) -> str:
        """Return the address of the client, as a trusted proxy or the connection tells it."""
        peer = str((scope.get("client") or ["local"])[0])
        if peer not in self.settings.proxies:
            return peer
        named = ",".join(Headers(scope=scope).getlist("x-forwarded-for")).rpartition(",")[2].strip()
        return named if _is_address(named) else peer

    def _find_host(self, header: str) -> bool:
        """Return whether a ``Host`` header names this server."""
        match = _HOST.fullmatch(header)
        if match is None:
            return False
        name = match["name"].strip("[]").lower()
        if is_loopback(name) or name in (host.lower() for host in self.settings.allowed_hosts):
            return True
        if self.settings.on_loopback:
            return False
        return name == self.settings.host.lower() or _is_address(name)  # an address cannot be rebound

    def _is_authorised(self, path: str, headers: Headers) -> bool:
        token = self.settings.token
        if token is None or path in _PAGE[:2] or path.startswith(_PAGE[2]):
            return True
        if self.settings.on_loopback and path in _OBSERVED:
            return True
        scheme, _, given = headers.get("authorization", "").partition(" ")
        if scheme.lower() == "basic":  # any user, the token as password
            given = _password(given)
        return hmac.compare_digest(given.strip().encode(), token.encode()) and scheme.lower() in ("bearer", "basic")


def _password(credentials: str) -> str:
    """Return the password of Basic credentials; empty if they are not valid."""
    try:
        return base64.b64decode(credentials.strip(), validate=True).decode().partition(":")[2]
    except ValueError:
        return ""


def _opens_page(headers: Headers, path: str) -> bool:
    """Return whether a link from another site opens the page itself."""
    return path in _PAGE[:2] and headers.get("sec-fetch-mode") == "navigate"


def _is_origin(origin: str, host: str) -> bool:
    """Return whether a page of this origin was loaded from this host."""
    scheme, _, netloc = origin.partition("://")
    return scheme.lower() in ("http", "https") and netloc.lower() == host.lower()


@lru_cache(maxsize=256)
def _network(address: str) -> str:
    """Return what one client can choose its addresses from: its /64 of IPv6.

    >>> _network("10.0.0.7"), _network("2001:db8::7")
    ('10.0.0.7', '2001:db8::/64')
    """
    return str(ip_network(f"{address}/64", strict=False)) if ":" in address and _is_address(address) else address


def _is_address(name: str) -> bool:
    try:
        ip_address(name)
    except ValueError:
        return False
    return True


def failure(error: Exception) -> Response:
    """Return the response for one of the errors in :data:`EXPECTED`."""
    if isinstance(error, Refusal):
        return refused(error.status, str(error), error.retry_after)
    if isinstance(error, StaleVersionError):
        return refused(412, f"nothing was done: {error}")
    if isinstance(error, MemoryNeededError):
        return refused(503, str(error), 60)
    if isinstance(error, OSError):
        return refused(507, f"the model could not be written: {error.strerror or error}", 60)
    return refused(422, str(error))


def refused(status: int, message: str, retry_after: float | None = None, headers: Any = None) -> Response:
    """Return ``{"error": message}`` with the headers that belong to the status."""
    headers = dict(headers or {})
    if retry_after is not None:
        headers["Retry-After"] = str(ceil(retry_after))
    if status in (408, 413):
        headers["Connection"] = "close"  # the rest of the body is not worth reading
    if status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    return JSONResponse({"error": message}, status, headers)
