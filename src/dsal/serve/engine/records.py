"""What the server records: metrics for Prometheus, and JSON lines about requests and changes."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from contextvars import ContextVar
from datetime import datetime, timezone
from logging.handlers import RotatingFileHandler
from pathlib import Path

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, generate_latest

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
_JOURNAL_BYTES = 50 * 2**20  # then a new file begins, and the last but one is removed

client: ContextVar[str] = ContextVar("client", default="local")
"""Address of the client whose request is being answered."""


class Journal:
    """JSON lines in a file; at 50 MB it is renamed to ``FILE.1``, and a new one begins."""

    def __init__(self, path: Path) -> None:
        self._handler = RotatingFileHandler(path, maxBytes=_JOURNAL_BYTES, backupCount=1, encoding="utf-8", delay=True)

    def write(self, **facts: object) -> None:
        """Add a line: the time, the client, and these facts. If it cannot be written, say so on stderr and go on."""
        now = datetime.now(timezone.utc).isoformat(timespec="milliseconds")
        line = json.dumps({"time": now, "client": client.get(), **facts})
        self._handler.handle(logging.makeLogRecord({"msg": line}))

    def close(self) -> None:
        """Close the file."""
        self._handler.close()


class Metrics:
    """The metrics of one server, in their own registry."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        ProcessCollector(registry=self._registry)
        into = self._registry
        self.requests = Counter("dsal_requests", "Requests answered.", ("route", "status"), registry=into)
        self.latency = Histogram(
            "dsal_request_seconds", "Time to answer a request.", ("route",), buckets=_SECONDS, registry=into
        )
        self.batches = Histogram(
            "dsal_batch_images", "Images per batch.", buckets=(1, 2, 4, 8, 16, 32, 64), registry=into
        )
        self.lessons = Counter("dsal_lessons", "Lessons by outcome.", ("outcome",), registry=into)
        self.lesson_images = Counter("dsal_lesson_images", "Images learned.", registry=into)
        self.lesson_seconds = Histogram(
            "dsal_lesson_seconds", "Time until a lesson is on disk.", buckets=_SECONDS, registry=into
        )

    def gauge(self, name: str, help: str, read: Callable[[], float]) -> None:
        """Add a gauge whose value is read when the metrics are requested."""
        Gauge(name, help, registry=self._registry).set_function(read)

    def text(self) -> bytes:
        """Return all metrics in Prometheus' text format."""
        return generate_latest(self._registry)
