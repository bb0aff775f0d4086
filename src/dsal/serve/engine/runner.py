"""Threads that decode images and run backbones, one batch per core; predictions go before lessons.

Features are extracted from one piece of work at a time. Pieces that arrive in the meantime and need the same scores
join the batch, up to ``max_batch`` images; then all are scored at once. So batches fill up under load, and a single
client never waits. Lessons submit their images a few at a time and give way to predictions; but every fourth piece of
work is theirs, so that they get on beside any load.
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

from dsal.data.images.decode import Pixels
from dsal.serve.engine.extractor import ImageFiles
from dsal.serve.http_errors import Refusal

Features: TypeAlias = NDArray[np.float32]
Rows: TypeAlias = tuple[NDArray[Any], ...]
Extract: TypeAlias = Callable[[Pixels], Features]
Score: TypeAlias = Callable[[Features], Rows]
_SHARE = 4  # one piece of work in so many belongs to lessons, if there are any


@dataclass(eq=False)
class _Piece:
    extract: Extract
    score: Score
    images: Pixels | ImageFiles
    arrived: float
    urgent: bool
    answer: Future[Rows] = field(default_factory=Future)

    def features(self) -> Features | None:
        """Return the features of the images that can be read; None if there are none."""
        pixels = self.images.decode() if isinstance(self.images, ImageFiles) else self.images
        return self.extract(pixels) if len(pixels) else None


class Runner:
    """Runs work on images in its own threads.

    Args:
        max_batch: most images per batch.
        max_wait: seconds that work waits for more of the same kind while its batch is not full.
        max_queue: most images of urgent work that may wait; more are refused with 429.
        observe: called with the size of every batch.
        threads: number of threads; lessons never take the last of several.

    Attributes:
        waiting: number of images waiting for a prediction.
        threads: number of batches that can run at the same time.
    """

    def __init__(
        self,
        max_batch: int,
        max_wait: float,
        max_queue: int,
        observe: Callable[[int], object] = lambda size: None,
        threads: int = 1,
    ) -> None:
        self.max_batch, self.max_wait, self.max_queue, self.threads = max_batch, max_wait, max_queue, threads
        self._observe = observe
        self._urgent: deque[_Piece] = deque()
        self._patient: deque[_Piece] = deque()
        self._changed = threading.Condition()
        self.waiting = 0
        self._seconds = 0.05  # per image, as a moving average
        self._stopped = False
        self._patient_left = max(threads - 1, 1)  # threads that a lesson may take
        self._since_patient = 0  # pieces of urgent work since the last one of a lesson
        self._threads = [threading.Thread(target=self._run, name="dsal-backbone", daemon=True) for _ in range(threads)]
        for thread in self._threads:
            thread.start()

    def submit(self, extract: Extract, score: Score, images: Pixels | ImageFiles, urgent: bool = True) -> Future[Rows]:
        """Queue images, decoded (n, c, h, w) or not, and return a future of the rows of ``score(extract(images))``.

        If none of the images can be read, its result is empty.

        Raises:
            Refusal: too many images are already waiting.
        """
        piece = _Piece(extract, score, images, time.monotonic(), urgent)
        with self._changed:
            if self._stopped:
                raise Refusal(503, "the server is shutting down")
            if urgent:
                if self.waiting + len(images) > self.max_queue:
                    raise Refusal(
                        429,
                        f"{self.waiting} images are already waiting for a prediction: try again later",
                        retry_after=max(1.0, self.waiting * self._seconds),
                    )
                self.waiting += len(images)
            (self._urgent if urgent else self._patient).append(piece)
            self._changed.notify_all()
        return piece.answer

    def close(self) -> None:
        """Finish running work and cancel waiting work."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()
        for thread in self._threads:
            thread.join()

    def _run(self) -> None:
        while (first := self._next()) is not None:
            try:
                self._answer(first)
            finally:
                if not first.urgent:
                    with self._changed:
                        self._patient_left += 1
                        self._changed.notify_all()
                del first  # and the model it refers to, which a lesson may replace while this thread waits

    def _answer(self, first: _Piece) -> None:
        """Extract the features of a piece and of all that join it, score them together and answer."""
        start, batch, size = time.monotonic(), list[tuple[_Piece, Features]](), 0
        piece: _Piece | None = first
        while piece is not None:
            size += len(piece.images)
            try:
                if piece.answer.set_running_or_notify_cancel():
                    features = piece.features()
                    if features is None:
                        piece.answer.set_result(())
                    else:
                        batch.append((piece, features))
            except BaseException as error:  # pass any error to the caller, and keep the thread running
                piece.answer.set_exception(error)
            piece = self._more(first, size) if first.urgent else None
        if not batch:
            return
        try:
            rows = first.score(np.concatenate([features for _, features in batch]))
        except BaseException as error:
            for piece, _ in batch:
                piece.answer.set_exception(error)
            return
        self._observe(len(rows[0]))
        seconds = (time.monotonic() - start) / len(rows[0]) / self.threads
        self._seconds += 0.2 * (seconds - self._seconds)
        end = 0
        for piece, features in batch:
            begin, end = end, end + len(features)
            piece.answer.set_result(tuple(column[begin:end] for column in rows))

    def _next(self) -> _Piece | None:
        """Wait for work and take the oldest piece; None once the runner is closed."""
        with self._changed:
            while not (self._urgent or (self._patient and self._patient_left) or self._stopped):
                self._changed.wait()
            if self._stopped:
                for piece in (*self._urgent, *self._patient):
                    piece.answer.cancel()
                return None
            turn = self._patient and self._patient_left and self._since_patient >= _SHARE - 1
            if self._urgent and not turn:
                self._since_patient += 1
                return self._take(self._urgent[0])
            self._patient_left -= 1
            self._since_patient = 0
            return self._patient.popleft()

    def _more(self, first: _Piece, size: int) -> _Piece | None:
        """Take the oldest piece that can join a batch of ``size`` images; None if there is none."""
        until = first.arrived + self.max_wait
        with self._changed:
            while True:
                for piece in self._urgent:
                    if piece.score == first.score and size + len(piece.images) <= self.max_batch:
                        return self._take(piece)
                left = until - time.monotonic()
                if size >= self.max_batch or left <= 0 or self._stopped:
                    return None
                self._changed.wait(left)

    def _take(self, piece: _Piece) -> _Piece:
        self._urgent.remove(piece)
        self.waiting -= len(piece.images)
        return piece
