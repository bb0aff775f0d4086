"""Errors of the server."""

from __future__ import annotations

from typing import Any

from dsal.errors import DSALError


class Refusal(DSALError):
    """A refused request: HTTP status, message, and the seconds after which to try again, if that may help."""

    def __init__(self, status: int, message: str, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.retry_after = 5 if retry_after is None and status in (429, 503) else retry_after


class Unchanged(DSALError):
    """A change that changed nothing, so that nothing needs to be written; carries its outcome."""

    def __init__(self, outcome: dict[str, Any]) -> None:
        super().__init__("nothing changed")
        self.outcome = outcome


class Cancelled(DSALError):
    """A lesson that was cancelled before anything was learned."""


class Stopped(Refusal):
    """The server stops before it made a change."""

    def __init__(self) -> None:
        super().__init__(503, "the server is stopping: nothing was changed; send it again")


class Unknown(Refusal):
    """The server stops while it makes a change."""

    def __init__(self) -> None:
        super().__init__(
            503, "the server is stopping and the outcome is unknown: ask again with the same Idempotency-Key"
        )
