"""The threads that run backbones, a batch on a core: predictions first, lessons in between.

Work is a function of a batch of images whose results are arrays of as many rows. Pieces of work with the same function
that wait together are run together, up to ``max_batch`` images; a piece that arrives alone waits ``max_wait`` seconds
for company. Lessons hand in their images a few at a time and give way to predictions.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import torch
from numpy.typing import NDArray
from torch import Tensor

from dsal.serve.errors import Refusal

Rows: TypeAlias = tuple[NDArray[Any], ...]
Work: TypeAlias = Callable[[Tensor], Rows]


@dataclass(eq=False)
class _Piece:
    work: Work
    images: Tensor  # uint8 (n, c, h, w)
    arrived: float
    urgent: bool
    answer: Future[Rows] = field(default_factory=Future)


class Runner:
    """Runs work on images in its own threads.

    Args:
        max_batch: images at a time.
        max_wait: seconds that work may wait for more of its kind.
        max_queue: images of urgent work that may wait; more are refused with 429.
        observe: called with the size of every batch.
        threads: batches at a time; lessons never take the last of several threads.
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
        self._seconds = 0.05  # an image takes, by recent experience
        self._stopped = False
        self._patient_left = max(threads - 1, 1)  # threads that a lesson may take
        self._threads = [threading.Thread(target=self._run, name="dsal-backbone", daemon=True) for _ in range(threads)]
        for thread in self._threads:
            thread.start()

    @property
    def waiting(self) -> int:
        """Images that wait for a prediction."""
        return self._waiting

    def submit(self, work: Work, images: Tensor, urgent: bool = True) -> Future[Rows]:
        """Queue images (n, c, h, w); the answer holds the rows of ``work(images)``.

        Raises:
            Refusal: too many images wait already.
        """
        piece = _Piece(work, images, time.monotonic(), urgent)
        with self._changed:
            if self._stopped:
                raise Refusal(503, "the server is shutting down", retry_after=5)
            if urgent:
                if self._waiting + len(images) > self.max_queue:
                    raise Refusal(
                        429,
                        f"{self._waiting} images wait for a prediction already: try again later",
                        retry_after=max(1.0, self._waiting * self._seconds),
                    )
                self._waiting += len(images)
            (self._urgent if urgent else self._patient).append(piece)
            self._changed.notify()
        return piece.answer

    def close(self) -> None:
        """Finish what is being run, cancel what waits."""
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

    def _answer(self, batch: list[_Piece]) -> None:
        if not batch:
            return
        start = time.monotonic()
        images = torch.cat([piece.images for piece in batch])
        self._observe(len(images))
        try:
            rows = batch[0].work(images)
        except BaseException as error:  # whatever it was, the callers must hear of it, and the thread goes on
            for piece in batch:
                piece.answer.set_exception(error)
            return
        self._seconds += 0.2 * ((time.monotonic() - start) / len(images) / len(self._threads) - self._seconds)
        first = 0
        for piece in batch:
            last = first + len(piece.images)
            piece.answer.set_result(tuple(column[first:last] for column in rows))
            first = last

    def _next(self) -> list[_Piece]:
        """Wait for work and take a batch of it; nothing if another thread was quicker, or the runner was closed."""
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
            while 0 < self._waiting < self.max_batch and (left := until - time.monotonic()) > 0 and not self._stopped:
                self._changed.wait(left)
            return self._take() if self._urgent else []

    def _take(self) -> list[_Piece]:
        """The oldest urgent piece, and all others with its work that fit into the batch."""
        batch, rest, size = [self._urgent[0]], [], len(self._urgent[0].images)
        for piece in list(self._urgent)[1:]:
            if piece.work == batch[0].work and size + len(piece.images) <= self.max_batch:
                batch.append(piece)
                size += len(piece.images)
            else:
                rest.append(piece)
        self._urgent = deque(rest)
        self._waiting -= size
        return batch
