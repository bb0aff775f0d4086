"""What a server may be told, and the limits it keeps."""

from __future__ import annotations

from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path

from dsal.backbones.hub import DEFAULT
from dsal.errors import InputError

MEGABYTE = 2**20


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Settings of a server; every number is a limit.

    Attributes:
        folder: where the model files are, one a project.
        host: address to listen at.
        port: 0 for any that is free.
        token: what every request must bring; None where none is needed.
        allowed_hosts: names under which the server is reached, besides its address: those of a proxy, say.
        backbone: of new models.
        expansion_size: of new models.
        max_batch: images that the backbone sees at a time.
        max_wait_ms: how long a prediction waits for others to share its batch.
        max_body: bytes of a request.
        max_bodies: bytes of all requests that are being answered.
        max_upload: bytes of a model file.
        max_images: images of a request.
        max_pixels: pixels of an image.
        max_queue: images that wait for a prediction.
        max_lessons: lessons that wait.
        timeout: seconds for a request to arrive, and again for a prediction to be made.
        idle: seconds after which a connection that sends nothing is closed.
    """

    folder: Path
    host: str = "127.0.0.1"
    port: int = 8000
    token: str | None = None
    allowed_hosts: tuple[str, ...] = ()
    backbone: str = DEFAULT
    expansion_size: int = 2048
    max_batch: int = 8
    max_wait_ms: float = 4.0
    max_body: int = 64 * MEGABYTE
    max_bodies: int = 512 * MEGABYTE
    max_upload: int = 2048 * MEGABYTE
    max_images: int = 1000
    max_pixels: int = 50_000_000
    max_queue: int = 512
    max_lessons: int = 16
    timeout: float = 60.0
    idle: float = 20.0

    def __post_init__(self) -> None:
        """Refuse values that make no sense."""
        for name in ("max_batch", "max_images", "max_queue", "max_lessons", "expansion_size"):
            if getattr(self, name) < 1:
                raise InputError(f"{name.replace('_', '-')} must be at least 1, got {getattr(self, name)}")
        if not 0 <= self.max_wait_ms <= 10_000:
            raise InputError(f"max-wait-ms must be from 0 to 10000, got {self.max_wait_ms}")
        if not 0 <= self.port <= 65535:
            raise InputError(f"port must be from 0 to 65535, got {self.port}")
        if self.token is not None and (len(self.token) < 8 or not self.token.isascii() or not self.token.isprintable()):
            raise InputError("a token must be at least 8 printable ASCII characters")
        if self.token is None and not self.on_loopback:
            raise InputError(f"listening at {self.host} needs a token: others can reach that address")

    @property
    def on_loopback(self) -> bool:
        """Whether only this machine can reach the server."""
        return is_loopback(self.host)


def is_loopback(host: str) -> bool:
    """Whether an address or name is this machine's own, and nobody else's.

    >>> is_loopback("127.0.0.1"), is_loopback("::1"), is_loopback("localhost"), is_loopback("0.0.0.0")
    (True, True, True, False)
    """
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"
