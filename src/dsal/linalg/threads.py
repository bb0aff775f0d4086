"""One pool of threads for all linear algebra, which sleep while they wait.

The libraries below (OpenBLAS, OpenMP) have their own pools, whose threads *busy-wait* for each other, thousands of
times per phase. If another process uses one of the processors, one thread waits for a time slice at each
synchronisation, and a phase takes many times as long. So BLAS is limited to one thread while we compute, work is cut
into tiles whose shapes do not depend on the number of threads, and the threads of this pool take tiles one by one.
Another process then costs only its share of the processors, and results are identical, bit for bit, for any number of
threads.

The number of threads is the number BLAS would use: ``OPENBLAS_NUM_THREADS``, ``OMP_NUM_THREADS`` and ``threadpoolctl``
are respected, as is the set of processors that the process may use.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import AbstractContextManager, contextmanager
from functools import cache
from threading import Lock
from typing import Any, TypeAlias

Task: TypeAlias = Callable[[], object]


class Workers:
    """Threads that take tasks one by one."""

    def __init__(self, threads: int) -> None:
        self.threads = threads
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="dsal-tiles") if threads > 1 else None

    def run(self, tasks: Sequence[Task]) -> None:
        """Run all tasks, started in this order; return, or raise the first error, when none is running.

        A task may wait for an earlier one, but must not call this method.
        """
        if self._pool is None or len(tasks) < 2:
            for task in tasks:
                task()
            return
        futures = [self._pool.submit(task) for task in tasks]
        try:
            for future in futures:
                future.result()
        finally:
            for future in futures:
                future.cancel()
            wait(futures)  # also after Ctrl-C: a caller may undo what tasks have changed


class _Shared:
    """The pool of this process, and the number of callers inside :func:`workers`."""

    def __init__(self) -> None:
        self.lock, self.inside = Lock(), 0
        self.limits: Any = None
        self.workers = Workers(1)

    @contextmanager
    def use(self) -> Iterator[Workers]:
        """Yield the pool; limit BLAS to one thread as long as anybody uses it."""
        with self.lock:
            if self.inside == 0:
                blas = _libraries()
                threads = max((library.num_threads for library in blas.lib_controllers), default=1)
                self.limits = blas.limit(limits=1) if threads > 1 else None
                if threads != self.workers.threads:
                    self.workers = Workers(threads)
            self.inside += 1
            pool = self.workers
        try:
            yield pool
        finally:
            with self.lock:
                self.inside -= 1
                if self.inside == 0 and self.limits is not None:
                    self.limits.restore_original_limits()


_shared = _Shared()


def workers() -> AbstractContextManager[Workers]:
    """Return a context with the pool, in which every BLAS call in this process uses one thread."""
    return _shared.use()


@cache
def _libraries() -> Any:
    """Return the BLAS libraries of this process whose number of threads can be set."""
    import scipy.linalg.cython_blas  # noqa: F401  it must be loaded to be found
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController().select(user_api="blas")


def _after_fork() -> None:
    """Start a new pool in the child: threads do not survive a fork."""
    global _shared
    _shared = _Shared()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
