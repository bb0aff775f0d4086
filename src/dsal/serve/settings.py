"""Options and limits of a server."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from typing import Any

from dsal.backbones.pretrained import DEFAULT
from dsal.data.images.formats import MOST_PIXELS
from dsal.errors import InputError, UnknownNameError

MEGABYTE = 2**20
LIMITS = (  # what --limit can change
    "max_body", "max_small", "max_json_values", "max_bodies", "max_upload", "max_images", "max_pixels", "max_queue",
    "max_lessons", "max_uploads", "max_rate", "timeout", "idle", "stalled", "stuck", "grace",
)  # fmt: skip
_UNITS = {"": 1, "k": 1000, "kb": 2**10, "mb": 2**20, "gb": 2**30}


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Settings of a server.

    Attributes:
        folder: folder of the model files, one per model.
        host: address to listen on.
        port: port to listen on; 0 for any free one.
        ssl_certfile: certificate for https, with its chain, in PEM; None for http.
        ssl_keyfile: its private key; None if it is in the same file.
        token: token that every request must carry; None if none is needed.
        allowed_hosts: host names under which the server is reached besides its address, for example that of a proxy.
        backbone: backbone of new models.
        expansion_size: d_B of new models.
        max_batch: most images that are scored together; small enough that work remains for the other threads.
        max_wait_ms: milliseconds that a prediction waits for others while its batch is not full.
        max_body: most bytes of a request.
        max_small: most bytes of a request without images.
        max_json_values: most values in a JSON body; a list, an object or a key counts for ten.
        max_bodies: most bytes of all requests in memory.
        max_upload: most bytes of an uploaded model file.
        max_images: most images per request.
        max_pixels: most pixels per image.
        max_queue: most images waiting for a prediction.
        max_lessons: most lessons or changes waiting.
        max_uploads: most model files that are uploaded at the same time.
        max_rate: most requests per second of one client, beyond bursts of ten seconds; 0 for no limit.
        timeout: seconds for a request to arrive, and again for a prediction.
        idle: seconds after which an idle connection is closed.
        stalled: seconds after which a connection is closed whose client reads nothing of its answer.
        stuck: seconds after which a change that is being made counts as hanging, and the server as not ready.
        grace: seconds after SIGTERM or Ctrl-C within which the process ends, whatever runs.
        memory: bytes that the process may take; models that are not used leave it.
        foreign_backbones: whether uploaded models may bring their own ONNX graph.
        proxies: addresses of proxies, which name the client in the last entry of ``X-Forwarded-For``.
        access_log: file for a line about every request; None for no such file.
        audit_log: file for a line about every change; by default ``.audit.jsonl`` in the folder of the models.
    """

    folder: Path
    host: str = "127.0.0.1"
    port: int = 8000
    ssl_certfile: Path | None = None
    ssl_keyfile: Path | None = None
    token: str | None = None
    allowed_hosts: tuple[str, ...] = ()
    backbone: str = DEFAULT
    expansion_size: int = 2048
    max_batch: int = 6
    max_wait_ms: float = 0.0
    max_body: int = 64 * MEGABYTE
    max_small: int = 2**16
    max_json_values: int = 1_000_000
    max_bodies: int = 512 * MEGABYTE
    max_upload: int = 2048 * MEGABYTE
    max_images: int = 1000
    max_pixels: int = MOST_PIXELS
    max_queue: int = 512
    max_lessons: int = 16
    max_uploads: int = 2
    max_rate: float = 0.0
    timeout: float = 60.0
    idle: float = 20.0
    stalled: float = 30.0
    stuck: float = 120.0
    grace: float = 10.0
    memory: int = 4 * 2**30
    foreign_backbones: bool = False
    proxies: tuple[str, ...] = ()
    access_log: Path | None = None
    audit_log: Path | None = None

    def __post_init__(self) -> None:
        """Raise InputError if a value is out of range."""
        for name in ("max_batch", "expansion_size", *LIMITS):
            least = 0 if name == "max_rate" else 1 if isinstance(getattr(self, name), int) else 1e-9
            if not least <= getattr(self, name) < 2**62:
                raise InputError(f"{name.replace('_', '-')} must be at least {least:g}, got {getattr(self, name)}")
        if self.memory < 2**29:
            raise InputError(f"memory must be at least 512 MB, got {self.memory} bytes")
        if not 0 <= self.max_wait_ms <= 10_000:
            raise InputError(f"max-wait-ms must be from 0 to 10000, got {self.max_wait_ms}")
        if not 0 <= self.port <= 65535:
            raise InputError(f"port must be from 0 to 65535, got {self.port}")
        if self.ssl_keyfile is not None and self.ssl_certfile is None:
            raise InputError("a key for https needs its certificate: ssl-certfile")
        if self.token is not None and (len(self.token) < 8 or not self.token.isascii() or not self.token.isprintable()):
            raise InputError("a token must be at least 8 printable ASCII characters")
        if self.token is None and not self.on_loopback:
            raise InputError(f"listening on {self.host} needs a token, because others can reach that address")

    @property
    def on_loopback(self) -> bool:
        """Whether only this machine can reach the server."""
        return is_loopback(self.host)

    @property
    def pixels(self) -> int:
        """Most pixels per image: decoding takes at most 12 bytes for each, and a sixth of the memory."""
        return min(self.max_pixels, self.memory // 72)


def is_loopback(host: str) -> bool:
    """Return whether an address or name is the loopback interface of this machine.

    >>> is_loopback("127.0.0.1"), is_loopback("::1"), is_loopback("localhost"), is_loopback("0.0.0.0")
    (True, True, True, False)
    """
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def limits(given: Iterable[str]) -> dict[str, Any]:
    """Return settings from texts such as ``max-images=100`` or ``max-body=16MB``; kB, MB and GB are powers of 1024.

    >>> limits(["max-body=16MB", "timeout=2.5"])
    {'max_body': 16777216, 'timeout': 2.5}
    """
    found: dict[str, Any] = {}
    for text in given:
        name, _, value = text.partition("=")
        setting = name.strip().replace("-", "_")
        if setting not in LIMITS:
            raise UnknownNameError("limit", name, [limit.replace("_", "-") for limit in LIMITS])
        amount = quantity(value)
        found[setting] = type(getattr(Settings, setting))(amount)
    return found


def quantity(text: str) -> float:
    """Return a number with or without a unit.

    >>> quantity("4GB"), quantity("2.5")
    (4294967296.0, 2.5)
    """
    number = re.fullmatch(r"\s*([0-9]{1,15}(?:\.[0-9]{1,9})?)\s*([A-Za-z]*)\s*", text)
    if number is None or number[2].lower() not in _UNITS:
        raise InputError(f"expected a number such as 30, 2.5, 64kB, 16MB or 4GB, got {text[:80]!r}")
    return float(number[1]) * _UNITS[number[2].lower()]
