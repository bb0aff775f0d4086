"""What a server refuses, as errors that know their HTTP status."""

from __future__ import annotations

from typing import Any

from dsal.errors import DSALError


class Refusal(DSALError):
    """A request that is not answered as asked: status, one sentence, and when to try again."""

    def __init__(self, status: int, message: str, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.status, self.retry_after = status, retry_after


class Unchanged(DSALError):
    """A change that turned out to change nothing, with its outcome; there is nothing to write."""

    def __init__(self, outcome: dict[str, Any]) -> None:
        super().__init__("nothing changed")
        self.outcome = outcome


class Cancelled(DSALError):
    """A lesson that was cancelled before anything was learned."""
