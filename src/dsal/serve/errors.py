"""What a server refuses, as errors that know their HTTP status."""

from __future__ import annotations

from dsal.errors import DSALError


class Refusal(DSALError):
    """A request that is not answered as asked: status, one sentence, and when to try again."""

    def __init__(self, status: int, message: str, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.status, self.retry_after = status, retry_after


class Cancelled(DSALError):
    """A lesson that was cancelled before anything was learned."""
