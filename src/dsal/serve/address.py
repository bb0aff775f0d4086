"""Under which address a server is reached, from this machine and from others."""

from __future__ import annotations

import socket
from urllib.parse import quote, urlsplit

from dsal.errors import InputError
from dsal.serve.settings import Settings, is_loopback

_EVERY = ("0.0.0.0", "::", "")  # addresses that mean: all of this machine
_ELSEWHERE = "203.0.113.1"  # reserved for documentation


def page_address(settings: Settings, port: int, with_token: bool) -> str:
    """Return the address of the page: one that other machines can open, if they can reach the server."""
    host = (lan_address() or "127.0.0.1") if settings.host in _EVERY else settings.host
    return _url("https" if settings.ssl_certfile else "http", host, port, settings.token if with_token else None)


def phone_address(settings: Settings, page: str) -> str | None:
    """Return the address of a page as other machines can open it, with the token; None if they cannot.

    ``page`` is the address under which a browser has opened it.
    """
    try:
        parts = urlsplit(page)
        host: str | None = parts.hostname or ""
        port = parts.port
    except ValueError as error:
        raise InputError(f"page must be an address such as http://127.0.0.1:8000, got {page!r}: {error}") from error
    if is_loopback(host or ""):
        host = None if settings.on_loopback else lan_address() if settings.host in _EVERY else settings.host
    return None if host is None else _url(parts.scheme, host, port, settings.token)


def lan_address() -> str | None:
    """Return the address of this machine in its network; None if it is in none. Nothing is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((_ELSEWHERE, 9))  # only chooses the address to send from
        except OSError:
            return None
        address = str(probe.getsockname()[0])
    return None if is_loopback(address) or address in _EVERY else address


def _url(scheme: str, host: str, port: int | None, token: str | None) -> str:
    name = f"[{host}]" if ":" in host else host
    end = "" if port is None else f":{port}"
    return f"{scheme}://{name}{end}/" + (f"#token={quote(token)}" if token else "")
