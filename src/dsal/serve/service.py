"""What the server does with images: predictions through the batching runner, lessons chunk by chunk."""

from __future__ import annotations

import asyncio
import hashlib
import math
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from os import cpu_count
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dsal.backbones.backbone import Card
from dsal.errors import FileFormatError
from dsal.images import ImageModel
from dsal.images.sources import content_keys
from dsal.serve.decoding import decode_bytes
from dsal.serve.errors import Cancelled, Refusal, Unchanged
from dsal.serve.library import Library, Outcome
from dsal.serve.metrics import Metrics
from dsal.serve.runner import Runner
from dsal.serve.settings import Settings
from dsal.serve.snapshot import Snapshot

T = TypeVar("T")


@dataclass(eq=False)
class Lesson:
    """A lesson under way.

    Attributes:
        total: images in it.
        done: how many were looked at.
        stage: ``"reading"`` images, ``"learning"`` and writing, after which it cannot be cancelled any more.
        cancelled: whether somebody asked for that.
    """

    total: int
    done: int = 0
    stage: str = "reading"
    cancelled: bool = False
    started: float = field(default_factory=time.monotonic)


@dataclass(frozen=True, eq=False)
class Scores:
    """What a model thinks of the images that could be read.

    Attributes:
        snapshot: the model.
        rows: their numbers among all images (n,).
        logits: (n, c).
        probabilities: (n, c).
        novelty: (n,), NaN where unknown.
        broken: number and reason of each of the others.
    """

    snapshot: Snapshot
    rows: list[int]
    logits: NDArray[np.float32]
    probabilities: NDArray[np.float32]
    novelty: NDArray[np.float32]
    broken: dict[int, str]


class Service:
    """Everything behind the routes; its methods belong to the event loop."""

    def __init__(self, settings: Settings) -> None:
        self.settings, self.metrics = settings, Metrics()
        self.library = Library(settings)
        self.runner = Runner(
            settings.max_batch,
            settings.max_wait_ms / 1000,
            settings.max_queue,
            self.metrics.batches.observe,
            threads=cpu_count() or 1,
        )
        self.lessons: dict[tuple[str, str], Lesson] = {}
        self._decoders = ThreadPoolExecutor(cpu_count() or 1, thread_name_prefix="dsal-decode")
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="dsal-writer")
        self._writes = 0
        self.metrics.gauge("dsal_queue_images", "Images that wait for a prediction.", lambda: self.runner.waiting)
        self.metrics.gauge("dsal_lessons_waiting", "Lessons under way or waiting.", lambda: len(self.lessons))

    def close(self) -> None:
        """Stop: lessons being read are cancelled, one being written is finished."""
        for lesson in self.lessons.values():
            lesson.cancelled = True
        self.runner.close()
        self._writer.shutdown(wait=True)
        self._decoders.shutdown(wait=True, cancel_futures=True)

    async def snapshot(self, name: str) -> Snapshot:
        """The model as it is now."""
        held = self.library.held(name)
        return held if held is not None else await asyncio.to_thread(self.library.snapshot, name)

    async def scores(self, name: str, images: Sequence[bytes] | Tensor, skip_broken: bool = False) -> Scores:
        """Scores of image files, or of pixels (n, c, size, size); at most ``max_batch`` of them wait in the queue."""
        snapshot = await self.snapshot(name)
        parts: list[tuple[NDArray[Any], ...]] = []
        rows: list[int] = []
        broken: dict[int, str] = {}
        try:
            async with _deadline(self.settings.timeout):
                for start in range(0, len(images), self.settings.max_batch):
                    piece = images[start : start + self.settings.max_batch]
                    if not isinstance(piece, Tensor):
                        piece, some, reasons = await self._decoded(piece, snapshot.extractor.card, start, skip_broken)
                        rows += some
                        broken |= reasons
                    if len(piece):
                        parts.append(await asyncio.wrap_future(self.runner.submit(snapshot.scores, piece)))
        except (TimeoutError, asyncio.TimeoutError) as error:
            raise Refusal(503, f"no answer within {self.settings.timeout:g} s: try again later", 5) from error
        if not parts:
            raise Refusal(422, f"none of the images can be read; the first: {next(iter(broken.values()), 'none came')}")
        logits, probabilities, novelty = (np.concatenate(columns) for columns in zip(*parts, strict=True))
        if isinstance(images, Tensor):
            rows = list(range(len(images)))
        return Scores(snapshot, rows, logits, probabilities, novelty, broken)

    async def learn(
        self, name: str, key: str | None, images: Sequence[bytes], labels: Sequence[str], skip_broken: bool
    ) -> Outcome:
        """Teach a model; when this returns, the lesson is on the disk."""
        digest = _digest(*labels, *images, b"skip" if skip_broken else b"stop")
        if len(self.lessons) >= self.settings.max_lessons:
            raise Refusal(429, f"{len(self.lessons)} lessons wait already: try again later", retry_after=5)
        handle = name, key or f"#{digest}{time.monotonic_ns()}"
        if handle in self.lessons:
            raise Refusal(409, "the lesson with this Idempotency-Key is under way: ask again for how it ended", 1)
        lesson = self.lessons[handle] = Lesson(total=len(images))
        ended = "refused"
        try:
            outcome = await self._learned(name, key, digest, lesson, images, labels, skip_broken)
            ended = "repeated" if outcome.get("repeated") else "learned"
        except (Cancelled, asyncio.CancelledError) as error:
            ended = "cancelled"
            raise Refusal(409, "the lesson was cancelled: nothing was learned") from error
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
        """Change a model in the writing thread; ``what`` is the change in words, to tell two of one key apart."""
        return await self.write(self.library.change, name, key, what, action, create)

    async def write(self, function: Callable[..., T], *arguments: Any) -> T:
        """Run a function in the writing thread, where one thing happens at a time."""
        if self._writes >= self.settings.max_lessons:
            raise Refusal(429, f"{self._writes} changes wait already: try again later", retry_after=5)
        self._writes += 1
        try:
            # A request whose client has gone is finished all the same: half a change there is not.
            return await asyncio.shield(
                asyncio.get_running_loop().run_in_executor(self._writer, lambda: function(*arguments))
            )
        finally:
            self._writes -= 1

    async def _learned(
        self,
        name: str,
        key: str | None,
        digest: str,
        lesson: Lesson,
        images: Sequence[bytes],
        labels: Sequence[str],
        skip_broken: bool,
    ) -> Outcome:
        extractor = await asyncio.to_thread(self.library.extractor, name)
        pieces: list[NDArray[np.float32]] = []
        rows: list[int] = []
        broken: dict[int, str] = {}
        if not await self._known(name, key):
            for start in range(0, len(images), self.settings.max_batch):
                if lesson.cancelled:
                    raise Cancelled
                chunk = images[start : start + self.settings.max_batch]
                pixels, some, reasons = await self._decoded(chunk, extractor.card, start, skip_broken)
                rows += some
                broken |= reasons
                if len(pixels):
                    future = self.runner.submit(extractor.features, pixels, urgent=False)
                    (x,) = await asyncio.wrap_future(future)
                    pieces.append(x)
                lesson.done = start + len(chunk)
            if not pieces:
                raise Refusal(422, f"none of the images can be read; the first: {next(iter(broken.values()))}")
        if lesson.cancelled:
            raise Cancelled
        keys = await asyncio.to_thread(content_keys, images)
        unread = [f"image {row + 1}: {reason}" for row, reason in broken.items()]

        def teach(model: ImageModel) -> Outcome:
            if lesson.cancelled:
                raise Cancelled
            if model.backbone is not extractor.backbone or not pieces:
                raise Refusal(409, f"the model {name!r} was replaced meanwhile: send the lesson again")
            lesson.stage = "learning"
            given = [labels[row] for row in rows]
            new = [i for i, row in enumerate(rows) if not model.seen.labels(keys[row])]
            told = {"seen_before": len(rows) - len(new), "broken": unread}
            if not new:
                raise Unchanged({"images": 0, "new_classes": [], "known_classes": [], "loo_accuracy": None, **told})
            taught = model.learn_features(
                np.concatenate(pieces)[new], np.array(given)[new], [keys[rows[i]] for i in new]
            )
            return {
                "images": taught.images,
                "new_classes": list(taught.new_classes),
                "known_classes": list(taught.known_classes),
                "loo_accuracy": None if math.isnan(taught.loo_accuracy) else taught.loo_accuracy,
                **told,
                "seconds": round(time.monotonic() - lesson.started, 3),
            }

        try:
            return await self.change(name, key, digest, teach, create=True)
        except Unchanged as nothing:
            return {**nothing.outcome, "seconds": round(time.monotonic() - lesson.started, 3)}

    async def _known(self, name: str, key: str | None) -> bool:
        """Whether the change of this key was made already."""
        if key is None:
            return False
        try:
            return await asyncio.to_thread(self.library.outcome, name, key) is not None
        except Refusal:
            return False

    async def _decoded(
        self, files: Sequence[bytes], card: Card, start: int, skip_broken: bool
    ) -> tuple[Tensor, list[int], dict[int, str]]:
        """Pixels of what can be read, its row numbers from ``start`` on, and why the rest cannot."""
        most = self.settings.max_pixels
        loop = asyncio.get_running_loop()
        decoded = await asyncio.gather(
            *(loop.run_in_executor(self._decoders, decode_bytes, f, card.size, card.in_channels, most) for f in files),
            return_exceptions=True,
        )
        pixels: list[Tensor] = []
        rows: list[int] = []
        broken: dict[int, str] = {}
        for row, answer in enumerate(decoded, start):
            if isinstance(answer, Tensor):
                pixels.append(answer)
                rows.append(row)
            elif not isinstance(answer, FileFormatError):
                raise answer
            elif not skip_broken:
                raise Refusal(422, f"image {row + 1} cannot be read: {answer}")
            else:
                broken[row] = str(answer)
        stacked = torch.stack(pixels) if pixels else torch.empty(0)
        return stacked, rows, broken


def _digest(*parts: str | bytes) -> str:
    digest = hashlib.sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        digest.update(len(data).to_bytes(8, "big"))
        digest.update(data)
    return digest.hexdigest()[:32]


class _deadline:
    """``asyncio.timeout`` for Python 3.10: cancels the block and raises TimeoutError."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    async def __aenter__(self) -> None:
        self._late = False
        task = asyncio.current_task()
        assert task is not None
        self._handle = asyncio.get_running_loop().call_later(self.seconds, self._expire, task)

    def _expire(self, task: asyncio.Task[Any]) -> None:
        self._late = True
        task.cancel()

    async def __aexit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        self._handle.cancel()
        if self._late and kind is asyncio.CancelledError:
            raise TimeoutError
