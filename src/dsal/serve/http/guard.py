"""Access control: checks Host, Origin and token before anything else, and adds security headers to every response.

A page of another site must not use a server on this machine: neither under its own name that resolves to this address
(DNS rebinding, detected by the Host) nor by sending requests from a visitor's browser (CSRF, detected by the Origin).
"""

from __future__ import annotations

import base64
import hmac
import json
import re
import time
from functools import lru_cache
from ipaddress import ip_address

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

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


class Guard:
    """ASGI middleware that refuses forbidden requests, limits the body of every other, and records metrics."""

    def __init__(self, app: ASGIApp, service: Service, bodies: Bodies) -> None:
        self.app, self.service, self.bodies = app, service, bodies
        self.settings, self.metrics = service.settings, service.metrics
        self._is_known_host = lru_cache(maxsize=256)(self._find_host)  # most clients send the same header every time

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Refuse the request, or pass it on."""
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self.app(scope, receive, send)
            return
        start, status = time.perf_counter(), 500
        body = self.bodies.incoming(scope, receive)

        async def watched(message: Message) -> None:
            nonlocal status
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
                await _answer(refusal, watched)
                return
            await self.app(scope, body, watched)
        finally:
            body.release()
            route = getattr(scope.get("route"), "path", "none")
            self.metrics.requests.labels(route, str(status)).inc()
            self.metrics.latency.labels(route).observe(time.perf_counter() - start)

    def check(self, scope: Scope) -> None:
        """Raise Refusal if the request is not allowed."""
        headers, path = Headers(scope=scope), scope["path"]
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


def _is_address(name: str) -> bool:
    try:
        ip_address(name)
    except ValueError:
        return False
    return True


async def _answer(refusal: Refusal, send: Send) -> None:
    headers = [(b"content-type", b"application/json"), (b"connection", b"close")]
    if refusal.status == 401:
        headers.append((b"www-authenticate", b"Bearer"))
    await send({"type": "http.response.start", "status": refusal.status, "headers": headers})
    await send({"type": "http.response.body", "body": json.dumps({"error": str(refusal)}).encode()})
