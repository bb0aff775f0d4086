"""Threads that decode images and run backbones, one batch per core; predictions take precedence over lessons.

Work is a function that maps a batch of images to arrays with one row per image. Waiting pieces of work with the same
function run together, up to ``max_batch`` images. A batch waits for as many images as the last one had, but at most
``max_wait`` seconds: under load batches fill up, and a single client never waits. Lessons submit their images a few at
a time and give way to predictions.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dsal.data.decode import Pixels
from dsal.serve.decoding import ImageFiles
from dsal.serve.errors import Refusal

Rows: TypeAlias = tuple[NDArray[Any], ...]
Work: TypeAlias = Callable[[Pixels], Rows]


@dataclass(eq=False)
class _Piece:
    work: Work
    images: Pixels | ImageFiles
    arrived: float
    urgent: bool
    answer: Future[Rows] = field(default_factory=Future)


class Runner:
    """Runs work on images in its own threads.

    Args:
        max_batch: most images per batch.
        max_wait: most seconds that work waits for more of the same kind.
        max_queue: most images of urgent work that may wait; more are refused with 429.
        observe: called with the size of every batch.
        threads: number of threads; lessons never take the last of several.
    """

    def __init__(
        self,
        max_batch: int,
        max_wait: float,
        max_queue: int,
        observe: Callable[[int], object] = lambda size: None,
        threads: int = 1,
    ) -> None:
        self.max_batch, self.max_wait, self.max_queue = max_batch, max_wait, max_queue
        self._observe = observe
        self._urgent: deque[_Piece] = deque()
        self._patient: deque[_Piece] = deque()
        self._changed = threading.Condition()
        self._waiting = 0  # images of urgent work
        self._expected = 1  # images of the next batch: as many as the last one had
        self._seconds = 0.05  # per image, as a moving average
        self._stopped = False
        self._patient_left = max(threads - 1, 1)  # threads that a lesson may take
        self._threads = [threading.Thread(target=self._run, name="dsal-backbone", daemon=True) for _ in range(threads)]
        for thread in self._threads:
            thread.start()

    @property
    def waiting(self) -> int:
        """Number of images waiting for a prediction."""
        return self._waiting

    @property
    def threads(self) -> int:
        """Number of batches that can run at the same time."""
        return len(self._threads)

    def submit(self, work: Work, images: Pixels | ImageFiles, urgent: bool = True) -> Future[Rows]:
        """Queue images, decoded (n, c, h, w) or not, and return a future of the rows of ``work(images)``.

        If none of the images can be read, its result is empty.

        Raises:
            Refusal: too many images are already waiting.
        """
        piece = _Piece(work, images, time.monotonic(), urgent)
        with self._changed:
            if self._stopped:
                raise Refusal(503, "the server is shutting down", retry_after=5)
            if urgent:
                if self._waiting + len(images) > self.max_queue:
                    raise Refusal(
                        429,
                        f"{self._waiting} images are already waiting for a prediction: try again later",
                        retry_after=max(1.0, self._waiting * self._seconds),
                    )
                self._waiting += len(images)
            (self._urgent if urgent else self._patient).append(piece)
            self._changed.notify()
        return piece.answer

    def close(self) -> None:
        """Finish running work and cancel waiting work."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()
        for thread in self._threads:
            thread.join()

    def _run(self) -> None:
        while not self._stopped:
            batch = self._next()
            try:
                self._answer([piece for piece in batch if piece.answer.set_running_or_notify_cancel()])
            finally:
                if batch and not batch[0].urgent:
                    with self._changed:
                        self._patient_left += 1
                        self._changed.notify()
                del batch  # and the model it refers to, which a lesson may replace while this thread waits

    def _answer(self, batch: list[_Piece]) -> None:
        start = time.monotonic()
        decoded: list[tuple[_Piece, Pixels]] = []
        for piece in batch:
            try:
                pixels = piece.images.decode() if isinstance(piece.images, ImageFiles) else piece.images
                decoded.append((piece, pixels))
            except BaseException as error:  # pass any error to the caller, and keep the thread running
                piece.answer.set_exception(error)
        if not decoded:
            return
        images = np.concatenate([pixels for _, pixels in decoded])
        self._observe(len(images))
        try:
            rows = batch[0].work(images) if len(images) else ()
        except BaseException as error:
            for piece, _ in decoded:
                piece.answer.set_exception(error)
            return
        seconds = (time.monotonic() - start) / max(len(images), 1) / len(self._threads)
        self._seconds += 0.2 * (seconds - self._seconds)
        first = 0
        for piece, pixels in decoded:
            last = first + len(pixels)
            piece.answer.set_result(tuple(column[first:last] for column in rows))
            first = last

    def _next(self) -> list[_Piece]:
        """Wait for work and take a batch; empty if another thread was faster or the runner was closed."""
        with self._changed:
            while not (self._urgent or (self._patient and self._patient_left) or self._stopped):
                self._changed.wait()
            if self._stopped:
                for piece in (*self._urgent, *self._patient):
                    piece.answer.cancel()
                return []
            if not self._urgent:
                self._patient_left -= 1
                return [self._patient.popleft()]
            until = self._urgent[0].arrived + self.max_wait
            while 0 < self._waiting < self._expected and (left := until - time.monotonic()) > 0 and not self._stopped:
                self._changed.wait(left)
            return self._take() if self._urgent else []

    def _take(self) -> list[_Piece]:
        """Take the oldest urgent piece and all others with the same work that fit into the batch."""
        batch, rest, size = [self._urgent[0]], [], len(self._urgent[0].images)
        for piece in list(self._urgent)[1:]:
            if piece.work == batch[0].work and size + len(piece.images) <= self.max_batch:
                batch.append(piece)
                size += len(piece.images)
            else:
                rest.append(piece)
        self._urgent = deque(rest)
        self._waiting -= size
        self._expected = min(size, self.max_batch)
        return batch
