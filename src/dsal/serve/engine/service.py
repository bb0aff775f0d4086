"""The operations behind the routes: predictions in shared batches, lessons in chunks."""

from __future__ import annotations

import asyncio
import gc
import hashlib
import math
import os
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import anyio
import numpy as np
from anyio import to_thread

from dsal.data.images.decode import Pixels
from dsal.image_model import ImageModel
from dsal.image_model.predictor import Predictor, Scores
from dsal.image_model.sources import content_keys
from dsal.serve.engine.extractor import Extractor, ImageFiles
from dsal.serve.engine.library import Library, Outcome
from dsal.serve.engine.records import Metrics
from dsal.serve.engine.runner import Features, Rows, Runner, Score
from dsal.serve.engine.snapshots import Snapshot
from dsal.serve.engine.writer import Writer
from dsal.serve.http_errors import Cancelled, Refusal, Stopped, Unchanged, Unknown
from dsal.serve.settings import Settings

_MOST_REASONS = 5  # of images that cannot be read, in one error


@dataclass(eq=False)
class LessonProgress:
    """A lesson in progress.

    Attributes:
        total: number of images.
        done: number of images read.
        stage: ``"reading"`` images, or ``"learning"`` and writing, when it can no longer be cancelled.
        cancelled: whether a client asked to cancel it.
    """

    total: int
    done: int = 0
    stage: str = "reading"
    cancelled: bool = False
    started: float = field(default_factory=time.monotonic)


@dataclass(frozen=True, eq=False)
class ScoredImages:
    """Scores of the images that could be read.

    Attributes:
        predictor: the predictor of the model.
        rows: their indices among all images (n,).
        scores: their scores.
        broken: index and reason of each image that could not be read.
    """

    predictor: Predictor
    rows: list[int]
    scores: Scores
    broken: dict[int, str]


class ReadImages(NamedTuple):
    """Features of the images that could be read.

    Attributes:
        snapshot: the model whose backbone read them.
        x: their features (n, d).
        rows: their indices among all images (n,).
        broken: index and reason of each image that could not be read.
    """

    snapshot: Snapshot
    x: Features
    rows: list[int]
    broken: dict[int, str]


class Service:
    """Everything behind the routes; call its methods from the event loop."""

    def __init__(self, settings: Settings) -> None:
        self.settings, self.metrics = settings, Metrics()
        self.library = Library(settings)
        self.runner = Runner(
            settings.max_batch,
            settings.max_wait_ms / 1000,
            settings.max_queue,
            self.metrics.batches.observe,
            threads=os.cpu_count() or 1,
        )
        self.lessons: dict[tuple[str, str], LessonProgress] = {}
        self.writer = Writer(settings.max_lessons)
        self.draining = False
        self.collects = False  # whether a garbage collection is fast: see server.run
        self._probes = anyio.CapacityLimiter(2)
        self.metrics.gauge("dsal_queue_images", "Images waiting for a prediction.", lambda: self.runner.waiting)
        self.metrics.gauge("dsal_lessons_waiting", "Lessons in progress or waiting.", lambda: len(self.lessons))
        self.metrics.gauge("dsal_models_held", "Models in memory.", lambda: len(self.library.shelf))
        self.metrics.gauge("dsal_models_bytes", "Bytes of models in memory.", lambda: self.library.shelf.bytes())

    def close(self) -> None:
        """Stop: cancel lessons that are being read, finish one that is being written."""
        self.draining = True
        for lesson in list(self.lessons.values()):
            lesson.cancelled = True
        self.runner.close()
        self.writer.close()
        self.library.journal.close()

    async def snapshot(self, name: str) -> Snapshot:
        """Return the current snapshot of a model."""
        held = self.library.held(name)
        return held if held is not None else await asyncio.to_thread(self.library.snapshot, name)

    async def scores(
        self, snapshot: Snapshot, images: Sequence[bytes] | Pixels, skip_broken: bool = False
    ) -> ScoredImages:
        """Return scores of image files, or of pixels (n, c, size, size)."""
        seconds = self.settings.timeout
        try:
            with anyio.fail_after(seconds):
                score = snapshot.predictor.scores
                columns, rows, broken = await self._run(snapshot.extractor, score, images, skip_broken)
        except TimeoutError as error:
            raise Refusal(503, f"no answer within {seconds:g} s: try again later") from error
        return ScoredImages(snapshot.predictor, rows, Scores(*columns), broken)

    async def read(self, name: str, images: Sequence[bytes], skip_broken: bool = False) -> ReadImages:
        """Return features of image files as the backbone of a model reads them when it learns."""
        snapshot = await self.snapshot(name)
        await asyncio.to_thread(snapshot.extractor.prepare)
        (x,), rows, broken = await self._run(snapshot.extractor, _unscored, images, skip_broken)
        return ReadImages(snapshot, x, rows, broken)

    async def learn(
        self, name: str, key: str | None, images: Sequence[bytes], labels: Sequence[str], skip_broken: bool
    ) -> Outcome:
        """Teach a model; when this returns, the lesson is on disk."""
        digest = await asyncio.to_thread(digest_of, *labels, *images, b"skip" if skip_broken else b"stop")
        if len(self.lessons) >= self.settings.max_lessons:
            raise Refusal(429, f"{len(self.lessons)} lessons are already waiting: try again later")
        handle = name, key or f"#{digest}{time.monotonic_ns()}"
        if handle in self.lessons:
            raise Refusal(409, "the lesson with this Idempotency-Key is in progress: try again for its outcome", 1)
        lesson = self.lessons[handle] = LessonProgress(total=len(images))
        ended = "refused"
        try:
            outcome = await self._learn(name, key, digest, lesson, images, labels, skip_broken)
            ended = "repeated" if outcome.get("repeated") else "learned"
        except Cancelled as error:
            ended = "cancelled"
            if self.draining:
                raise Stopped from error
            raise Refusal(409, "the lesson was cancelled: nothing was learned") from error
        except asyncio.CancelledError as error:  # while its images are read
            ended = "cancelled"
            raise Stopped from error
        except Unknown:
            ended = "unknown"
            raise
        finally:
            del self.lessons[handle]
            self.metrics.lessons.labels(ended).inc()
        if ended == "learned":
            self.metrics.lesson_images.inc(outcome["images"])
            self.metrics.lesson_seconds.observe(time.monotonic() - lesson.started)
        return outcome

    async def change(
        self, name: str, key: str | None, what: str, action: Callable[[ImageModel], Outcome], create: bool = False
    ) -> Outcome:
        """Change a model in the writing thread; ``what`` identifies the change, in case its key is used twice."""
        outcome = await self.writer.run(self.library.change, name, key, what, action, create)
        if self.collects:  # exceptions in reference cycles would keep old snapshots in memory for hours
            gc.collect()  # here, since the writing thread gives way to others and would keep Python's lock meanwhile
        return outcome

    async def ready(self) -> None:
        """Raise Refusal if the server cannot do its work now."""
        if self.draining:
            raise Refusal(503, "the server is stopping")
        if self.writer.busy_seconds() > self.settings.stuck:
            raise Refusal(503, f"a change has been running for {self.writer.busy_seconds():.0f} s", retry_after=30)
        try:
            with anyio.fail_after(2):
                await to_thread.run_sync(_write_test, self.library.folder, limiter=self._probes, abandon_on_cancel=True)
        except (OSError, TimeoutError, anyio.WouldBlock) as error:
            raise Refusal(503, f"the model folder cannot be written: {error}") from error

    async def _learn(
        self,
        name: str,
        key: str | None,
        digest: str,
        lesson: LessonProgress,
        images: Sequence[bytes],
        labels: Sequence[str],
        skip_broken: bool,
    ) -> Outcome:
        extractor = await asyncio.to_thread(self.library.extractor, name)
        await asyncio.to_thread(extractor.prepare)
        features, rows, broken = np.empty(0, np.float32), list[int](), dict[int, str]()
        if not await self._known(name, key):
            (features,), rows, broken = await self._run(extractor, _unscored, images, skip_broken, lesson)
        if lesson.cancelled:
            raise Cancelled
        keys = await asyncio.to_thread(content_keys, images)
        unread = [f"image {row + 1}: {reason}" for row, reason in broken.items()]

        def teach(model: ImageModel) -> Outcome:
            if lesson.cancelled:
                raise Cancelled
            if model.backbone is not extractor.backbone or not rows:
                raise Refusal(409, f"the model {name!r} was replaced in the meantime: send the lesson again", 1)
            lesson.stage = "learning"
            given, given_keys = [labels[row] for row in rows], [keys[row] for row in rows]
            new, _, _, moved = model.seen.plan(given_keys, given)
            learned_as = [{"image": rows[i] + 1, "label": label} for i, label in moved]
            skipped = {"seen_before": len(rows) - len(new), "learned_as": learned_as, "broken": unread}
            if not new:
                nothing: Outcome = {"new_classes": [], "known_classes": [], "loo_accuracy": None, "mistaken": []}
                raise Unchanged({"images": 0, **nothing, **skipped})
            taught = model.learn_features(features[new], np.array(given)[new], [given_keys[i] for i in new])
            return {
                "images": taught.images,
                "new_classes": list(taught.new_classes),
                "known_classes": list(taught.known_classes),
                "loo_accuracy": None if math.isnan(taught.loo_accuracy) else taught.loo_accuracy,
                "mistaken": [{"image": rows[new[i]] + 1, "label": label} for i, label in taught.mistaken],
                **skipped,
                "seconds": round(time.monotonic() - lesson.started, 3),
            }

        try:
            return await self.change(name, key, digest, teach, create=True)
        except Unchanged as nothing:
            return {**nothing.outcome, "seconds": round(time.monotonic() - lesson.started, 3)}

    async def _known(self, name: str, key: str | None) -> bool:
        """Return whether the change with this key was already made."""
        if key is None:
            return False
        try:
            return await asyncio.to_thread(self.library.outcome, name, key) is not None
        except Refusal:
            return False

    async def _run(
        self,
        extractor: Extractor,
        score: Score,
        images: Sequence[bytes] | Pixels,
        skip_broken: bool,
        lesson: LessonProgress | None = None,
    ) -> tuple[Rows, list[int], dict[int, str]]:
        """Return the scores of the readable images, their indices, and the reasons why others cannot be read.

        One batch per thread is queued at a time; those of a lesson give way to predictions.
        """
        parts, rows, broken, batch = list[Rows](), list[int](), dict[int, str](), self.settings.max_batch

        def cut(start: int) -> Pixels | ImageFiles:
            some = images[start : start + batch]
            if isinstance(some, np.ndarray):
                return some
            return ImageFiles(some, start, extractor.card, self.settings.pixels, skip_broken)

        starts = range(0, len(images), batch)
        for some in (starts[i : i + self.runner.threads] for i in range(0, len(starts), self.runner.threads)):
            if lesson is not None and lesson.cancelled:
                raise Cancelled
            pieces = [cut(start) for start in some]
            futures: list[Future[Rows]] = []
            try:
                for piece in pieces:
                    futures.append(self.runner.submit(extractor.features, score, piece, lesson is None))
                for start, piece, future in zip(some, pieces, futures, strict=True):
                    answer = await asyncio.wrap_future(future)
                    if answer:
                        parts.append(answer)
                    if isinstance(piece, ImageFiles):
                        rows += piece.rows
                        broken |= piece.broken
                    else:
                        rows += range(start, start + len(piece))
                    if lesson is not None:
                        lesson.done = start + len(piece)
            except BaseException:
                for future in futures:
                    future.cancel()
                raise
        if not parts:
            reasons = [f"image {row + 1}: {reason}" for row, reason in list(broken.items())[:_MOST_REASONS]]
            raise Refusal(422, f"none of the images can be read: {'; '.join(reasons)}")
        return tuple(map(np.concatenate, zip(*parts, strict=True))), rows, broken


def _unscored(features: Features) -> Rows:
    return (features,)


def digest_of(*parts: str | bytes) -> str:
    """Return a hash that identifies a change, in case its key is used twice."""
    digest = hashlib.sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        digest.update(len(data).to_bytes(8, "big"))
        digest.update(data)
    return digest.hexdigest()[:32]


def _write_test(folder: Path) -> None:
    with tempfile.TemporaryFile(dir=folder) as file:
        file.write(b"x")
